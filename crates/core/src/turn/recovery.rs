//! Recovery: the records that end a turn which a crash left open.

use crate::cause::{Cause, CauseKind};
use crate::record::{CallOutcome, SessionRecord};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::session_state::SessionState;
use crate::usage::Usage;

impl SessionState {
    /// Records to append after a crash: an end with unknown outcome for each open call, and the ending of the turn.
    /// Empty if the last turn has its ending. A crash always rolls back.
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
            cause: Cause::new(CauseKind::Failure).detail("crash"),
            receipt: None,
            kept: Vec::new(),
            usage: Usage::default(),
        };
        ends.chain([ending]).collect()
    }
}
