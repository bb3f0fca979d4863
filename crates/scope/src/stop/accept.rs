//! Accepting a stop: the barrier of the whole extent closes before anybody hears of it.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::Cause;
use allstop_core::receipt::StopInfo;
use tokio::time::Instant;

use super::ladder::{self, Asks, Signals};
use super::progress::Rungs;
use super::{Stop, StopInProgress, StopRequest};
use crate::cell::{Accepted, Node, Reached, Role};

/// Accepts a stop of `target`, synchronously: when this returns, nothing in the extent starts any more.
pub(crate) fn accept(target: &Node, order: StopRequest) -> Stop {
    let env = target.env();
    let request = StopInfo {
        stop_id: (env.options.new_stop_id)(),
        target: target.label(),
        extent: order.extent,
        cause: order.cause.clone(),
        requested_at: (env.options.now)(),
    };
    let rungs = Rungs {
        accepted_at: Instant::now(),
        grace: order.grace.unwrap_or(env.options.grace),
        forced: Arc::default(),
    };
    let shared = StopInProgress::new(target, request.clone(), rungs.clone());
    let covered = shared.covering(|nodes| {
        let asks = cover(target, &shared, &order.cause, nodes)?;
        // All causes are set before anybody hears of the stop, so that whoever does can ask why.
        shared.announce();
        Ok(asks)
    });
    match covered {
        Ok(asks) => {
            let signals = Signals::of(shared.nodes());
            asks.send();
            ladder::begin(env, &shared, order.bystanders, signals);
            Stop { shared }
        }
        Err(NotCovered::Join(running)) => {
            running.wait_for_walk();
            // Who asks for a part of it does not force all of it.
            if order.grace == Some(Duration::ZERO) && running.is_of(target) {
                running.force();
            }
            Stop { shared: running }
        }
        Err(NotCovered::Ended) => already_ended(target, request, rungs),
    }
}

/// Reason that a stop of its own is not needed.
enum NotCovered {
    /// One that covers the target runs.
    Join(Arc<StopInProgress>),
    /// The work of the target has ended, or can no longer be stopped.
    Ended,
}

fn cover(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
) -> Result<Asks, NotCovered> {
    let mut reached = Reached::default();
    let mut accepted = target.accept(shared, cause, Role::Target, &mut reached);
    if matches!(accepted, Accepted::Shut) {
        if target.has_ended() {
            return Err(NotCovered::Ended);
        }
        accepted = target.accept(shared, cause, Role::ShutTarget, &mut reached);
    }
    match accepted {
        Accepted::Join(running) => return Err(NotCovered::Join(running)),
        Accepted::Committed | Accepted::Shut => return Err(NotCovered::Ended),
        Accepted::Covered | Accepted::CoveredBefore => {}
    }
    walk(target, shared, cause, nodes, &mut reached);
    Ok(Asks::of(reached))
}

/// Closes the barrier of everything below `target`, which has accepted already, and lists all that it has covered.
pub(super) fn walk(
    target: &Node,
    shared: &Arc<StopInProgress>,
    cause: &Cause,
    nodes: &mut Vec<Node>,
    reached: &mut Reached,
) {
    nodes.push(target.clone());
    // The latest first: what belongs together is listed, and then woken, together.
    while let Some(node) = reached.below.pop() {
        // A child keeps the cause of its own earlier stop; a wider one only counts it too.
        let accepted = node.accept(shared, cause, Role::Below, reached);
        if !matches!(accepted, Accepted::CoveredBefore) {
            nodes.push(node);
        }
    }
}

/// Answers for what has ended, or can no longer be stopped. An engine that writes its commit at this moment is waited for,
/// as long as the ask may take; what its turn has left running can no longer be ended by this stop, and is named.
fn already_ended(target: &Node, mut request: StopInfo, rungs: Rungs) -> Stop {
    if let Some(first) = target.covering_stop() {
        request.stop_id = first.request().stop_id.clone();
    }
    let shared = StopInProgress::too_late(target, request, rungs);
    target.watch_engines(&shared);
    ladder::begin(target.env(), &shared, Vec::new(), Signals::default());
    Stop { shared }
}
