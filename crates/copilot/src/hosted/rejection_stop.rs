//! Time of the stop that follows a rejected call.

use std::collections::HashSet;

use allstop_agent::AgentEvent;
use allstop_core::record::CallOutcome;
use allstop_core::{CallId, TurnNumber};
use allstop_session::{Session, SessionEvent, SessionEventKind};

/// Decides when a turn with a rejected call is stopped: after the end of the calls that ran in parallel.
///
/// A program answers parallel calls almost at once. If the first rejection stopped the turn immediately, the other answers
/// would come too late, and the outcome of their calls would be unknown.
///
/// The wait needs no limit: a stop of the turn, and the time limits of the calls, end it like any other wait for a call.
#[derive(Debug, Default)]
pub(super) struct RejectionStop(Option<RejectedCall>);

#[derive(Debug)]
struct RejectedCall {
    turn: TurnNumber,
    /// Running calls of the step at the time of the rejection. Calls that start later do not delay the stop.
    parallel: HashSet<CallId>,
}

impl RejectionStop {
    /// Returns true once for a turn with a rejected call, at the event after which no parallel call runs.
    pub(super) fn is_due(
        &mut self,
        event: &SessionEvent,
        session: &Session,
        is_rejected: impl Fn(&CallId) -> bool,
    ) -> bool {
        self.note(event, session, is_rejected);
        let Some(rejected) = &mut self.0 else {
            return false;
        };
        // The client may be slow: another turn may run when it receives the event.
        if session.last_turn() != rejected.turn {
            self.0 = None;
            return false;
        }
        let running = session.running_calls();
        rejected.parallel.retain(|call| running.contains(call));
        let is_due = rejected.parallel.is_empty();
        if is_due {
            self.0 = None;
        }
        is_due
    }

    fn note(
        &mut self,
        event: &SessionEvent,
        session: &Session,
        is_rejected: impl Fn(&CallId) -> bool,
    ) {
        let (SessionEventKind::Live(live), Some(turn)) = (&event.kind, event.turn) else {
            return;
        };
        match live {
            AgentEvent::ToolFinished {
                call_id, outcome, ..
            } => {
                if let Some(rejected) = &mut self.0 {
                    rejected.parallel.remove(call_id);
                }
                if *outcome == CallOutcome::Denied && self.0.is_none() && is_rejected(call_id) {
                    let mut parallel: HashSet<_> = session.running_calls().into_iter().collect();
                    parallel.remove(call_id);
                    self.0 = Some(RejectedCall { turn, parallel });
                }
            }
            AgentEvent::TurnEnded { .. } => self.0 = None,
            _ => {}
        }
    }
}
