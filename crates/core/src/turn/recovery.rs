//! Recovery: creates the records that end a turn after a crash of its process. A receipt is the result of a stop.

use crate::cause::{Cause, CauseKind};
use crate::ids::TurnNumber;
use crate::record::{CallOutcome, SessionRecord};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::session_state::SessionState;
use crate::usage::Usage;

/// Detail of the cause in an ending that recovery writes.
const CRASH: &str = "crash";

impl SessionState {
    /// Number of the last turn, if its process wrote no ending because the process crashed or the store was full.
    /// `None` if the log has a receipt that is newer than the start of the turn. The caller must make sure that the
    /// turn does not run any more.
    pub fn turn_cut_off(&self) -> Option<TurnNumber> {
        let last = self.turns().last()?;
        let is_cut_off = match &last.ending {
            None => true,
            Some(ending) => {
                let detail = ending
                    .cause
                    .as_ref()
                    .and_then(|cause| cause.detail.as_deref());
                ending.receipt.is_none() && detail == Some(CRASH)
            }
        };
        let stopped_at = self
            .last_receipt()
            .map(|receipt| receipt.request().requested_at);
        let has_receipt = stopped_at.is_some_and(|at| at > last.started_at);
        (is_cut_off && !has_receipt).then_some(last.turn)
    }

    /// Records to append after a crash: first an end with an unknown outcome for each open call, then the ending of the
    /// turn. Empty if the last turn has its ending. No message of the turn stays in the conversation.
    pub fn recovery_records(&self, at: Timestamp) -> Vec<SessionRecord> {
        let Some(open) = self.open_turn() else {
            return Vec::new();
        };
        let turn = open.number();
        let ends = open
            .open_calls()
            .iter()
            .map(|call| SessionRecord::CallFinished {
                turn,
                id: call.id.clone(),
                outcome: CallOutcome::Unknown,
                usage: None,
                finish: None,
                exit_code: None,
            });
        let ending = SessionRecord::TurnStopped {
            turn,
            at,
            reason: StopReason::Error,
            cause: Cause::new(CauseKind::Failure).detail(CRASH),
            receipt: None,
            kept: Vec::new(),
            usage: Usage::default(),
        };
        ends.chain([ending]).collect()
    }
}
