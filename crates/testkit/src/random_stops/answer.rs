//! Stops of a run, their answers, and what the world was like then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_agent::Run;
use allstop_core::receipt::{ItemState, Verified};
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{FORCE_MAX, Scope, Stop, StopOrder};
use tokio::time::{sleep, timeout};

use super::place::{GRACE, Place};
use super::system;
use super::way::RandomWay;

/// What a machine may add that does many other things at once.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// The longest that a stop may take.
pub(super) const ANSWERED_WITHIN: Duration = GRACE.saturating_add(FORCE_MAX).saturating_add(SLACK);

/// The answer to a stop, and what the world was like at that moment.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) extent: Extent,
    pub(super) took: Duration,
    /// `None`: there was none in time.
    pub(super) receipt: Option<Arc<Receipt>>,
    pub(super) running: Vec<String>,
    /// Connections that the server saw open then, or a moment later.
    pub(super) connections: usize,
}

/// Stops the run in this way, and waits for the answers.
pub(super) async fn stop(
    place: &Place,
    run: &Run,
    [root, session, background]: [&Scope; 3],
    way: RandomWay,
) -> Vec<Answered> {
    let order = |extent, cause| StopOrder::new(extent, Cause::new(cause)).bystander(background);
    let turn = |cause| run.scope().stop(order(Extent::Turn, cause));
    let stops: Vec<Stop> = match way {
        RandomWay::Stop(Extent::Process, cause) => vec![root.stop(order(Extent::Process, cause))],
        RandomWay::Stop(Extent::Session, cause) => {
            vec![session.stop(order(Extent::Session, cause))]
        }
        RandomWay::Stop(_, cause) => vec![turn(cause)],
        RandomWay::Force(after) => {
            let first = turn(CauseKind::User);
            sleep(after).await;
            let second = order(Extent::Turn, CauseKind::User).grace(Duration::ZERO);
            vec![first, run.scope().stop(second)]
        }
        RandomWay::Wider(after) => {
            let first = turn(CauseKind::User);
            sleep(after).await;
            let second = order(Extent::Process, CauseKind::Shutdown);
            vec![first, root.stop(second)]
        }
        RandomWay::Drop | RandomWay::Deadline => Vec::new(),
    };
    let mut answers = Vec::new();
    for stop in stops {
        answers.push(answer(place, &stop).await);
    }
    answers
}

/// Waits for the answer, and looks at the world then.
pub(super) async fn answer(place: &Place, stop: &Stop) -> Answered {
    let asked = Instant::now();
    let receipt = timeout(ANSWERED_WITHIN, stop.receipt()).await.ok();
    let took = asked.elapsed();
    look(place, stop.request().extent, took, receipt).await
}

pub(super) async fn look(
    place: &Place,
    extent: Extent,
    took: Duration,
    receipt: Option<Arc<Receipt>>,
) -> Answered {
    let running = system::running(&place.mark());
    let closed_a_connection = receipt
        .iter()
        .flat_map(|receipt| receipt.items())
        .any(|item| match &item.state {
            // Of a call that was not sent yet the connection may be there, unused since the last one.
            ItemState::Stopped { evidence, .. } => evidence.proof() == Some(Verified::SocketClosed),
            _ => false,
        });
    let connections = if closed_a_connection {
        // What one end has closed the other hears of a moment later.
        let seen = place
            .server
            .wait_until(SLACK, |seen| seen.open() == 0)
            .await;
        seen.map_or_else(|seen| seen.open(), |_| 0)
    } else {
        0
    };
    Answered {
        extent,
        took,
        receipt,
        running,
        connections,
    }
}
