//! What a run left: everything that a checker can ask for.

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::{AgentEvent, Settings, TurnOutcome};
use allstop_core::receipt::StopOutcome;
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{Cause, CauseKind, Extent, Message, Receipt, StopReason, Usage};

use super::point::Point;
use super::session::SessionAftermath;
use super::store::StoreFault;
use super::world::{Lived, Order, World};
use crate::check::Violation;

/// A stop that was asked for in a run.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What it was to cover.
    pub extent: Extent,
    /// Why.
    pub cause: Cause,
    /// At which point.
    pub point: u32,
    /// When it was accepted: from then on nothing in its extent starts.
    pub accepted: Order,
    /// The same on the paused clock.
    pub at: Duration,
    /// The answer, when it came.
    pub answer: Option<Answered>,
}

/// The answer to a stop.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The receipt.
    pub receipt: Arc<Receipt>,
    /// When it could be read.
    pub order: Order,
    /// The same on the paused clock.
    pub at: Duration,
}

/// The moment in which a caller went away.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    /// At which point.
    pub point: u32,
    /// When.
    pub order: Order,
    /// The same on the paused clock.
    pub at: Duration,
}

/// What a run left.
#[derive(Debug, Clone)]
pub struct Aftermath {
    /// Every point that it passed.
    pub points: Vec<Point>,
    /// How the subject runs.
    pub settings: Settings,
    /// The stops that were asked for, in order.
    pub asked: Vec<Asked>,
    /// When the caller went away, if it did.
    pub caller_gone: Option<Gone>,
    /// How its store failed, if it did.
    pub store_fault: Option<StoreFault>,
    /// The deadline that was set from outside.
    pub deadline: Option<Duration>,
    /// Each turn's outcome, where somebody was there to get it.
    pub turns: Option<Vec<TurnOutcome>>,
    /// When the run was over.
    pub over: Order,
    /// The same on the paused clock.
    pub over_at: Duration,
    /// It did not come to an end.
    pub hung: bool,
    /// How many records there were before the first point.
    pub records_before: usize,
    /// The records of the session when the run was over.
    pub records: Vec<SessionRecord>,
    /// What the subject's own session held then.
    pub state: Option<SessionState>,
    /// What else was seen in it: what was written, what the model said.
    pub world: World,
    /// What really ran.
    pub lived: Vec<Lived>,
    /// What was shown live.
    pub events: Vec<(Order, AgentEvent)>,
    /// What the model was sent, the next message's requests included.
    pub requests: Vec<Vec<Arc<Message>>>,
    /// What the model said that it cost, as far as that was received.
    pub delivered: Usage,
    /// Tokens still set aside of the budget when the run was over.
    pub reserved_tokens: u64,
    /// How the message after the run ended.
    pub next: Option<StopReason>,
    /// How it had to end; `None`: in any way.
    pub next_must: Option<StopReason>,
    /// The records when that was over too.
    pub records_after_next: Vec<SessionRecord>,
    /// Tasks that were alive when everything was over and stopped.
    pub tasks_left: usize,
    /// Work that its scopes named as running then.
    pub work_left: Vec<String>,
    /// Real processes that it started past its scopes, and that had to be killed: `4711 (sleep)`.
    pub processes_left: Vec<String>,
    /// What the scenario's own checks found.
    pub own: Vec<Violation>,
    /// What its user and its subscriber saw, where a session is explored.
    pub session: Option<SessionAftermath>,
}

/// The first stop of a turn from outside, whatever brought it.
#[derive(Debug, Clone)]
pub struct Disturbance {
    /// Why.
    pub cause: Cause,
    /// At which point; none for a deadline.
    pub point: Option<u32>,
    /// When it was accepted; none for a deadline.
    pub accepted: Option<Order>,
    /// The same on the paused clock.
    pub at: Duration,
}

impl Aftermath {
    /// Whether the store has answered everything that it was asked, so that the session knows its log.
    pub(crate) fn is_settled(&self) -> bool {
        self.store_fault.is_none_or(|fault| !fault.stalls())
    }

    /// Whether a stop of more than a call was told that everything had ended before it.
    pub fn nothing_to_do(&self) -> bool {
        // Only of the first: a second one finds nothing because the first one did its work.
        let first = self.asked.iter().find(|asked| asked.extent != Extent::Call);
        let answer = first.and_then(|asked| asked.answer.as_ref());
        answer.is_some_and(|answer| answer.receipt.outcome() == Some(StopOutcome::AlreadyEnded))
    }

    /// The first stop from outside that ends the run. A session goes on after a stop: there is none.
    pub fn disturbance(&self) -> Option<Disturbance> {
        if self.session.is_some() {
            return None;
        }
        let asked = self.asked.iter().find(|asked| asked.extent != Extent::Call);
        let asked = asked.map(|asked| Disturbance {
            cause: asked.cause.clone(),
            point: Some(asked.point),
            accepted: Some(asked.accepted),
            at: asked.at,
        });
        let gone = self.caller_gone.map(|gone| Disturbance {
            cause: Cause::new(CauseKind::Disconnect),
            point: Some(gone.point),
            accepted: Some(gone.order),
            at: gone.at,
        });
        let deadline = self.deadline.map(|at| Disturbance {
            cause: Cause::new(CauseKind::Deadline),
            point: None,
            accepted: None,
            at,
        });
        asked.or(gone).or(deadline)
    }
}
