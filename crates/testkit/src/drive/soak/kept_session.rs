//! A session from life to life: what its users were told, and its records when it is closed.

use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{MessageId, SessionId};
use allstop_session::MessageOutcome;

use crate::observe::{RunObservation, ToldFacts, ToldOutcome};

/// A session from life to life.
#[derive(Debug)]
pub(super) struct KeptSession {
    pub(super) id: SessionId,
    pub(super) is_made: bool,
    /// Messages that were taken, those that a crash lost included.
    pub(super) messages: u64,
    told: ToldFacts,
}

impl KeptSession {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            is_made: false,
            messages: 0,
            told: ToldFacts::default(),
        }
    }

    /// Keeps the outcome of a message. If hours passed at once meanwhile, recovery may be the one that writes it.
    pub(super) fn came_to(&mut self, id: &MessageId, outcome: &MessageOutcome, has_jumped: bool) {
        self.told.outcomes.push(ToldOutcome {
            may_be_recovered: has_jumped,
            ..ToldOutcome::of(id, outcome)
        });
    }

    /// The closed session, as its log has it.
    pub(super) fn observe(self, records: Vec<SessionRecord>) -> RunObservation {
        RunObservation {
            // One that cannot be folded is seen by the checkers.
            state: SessionState::fold(&records).ok(),
            records_after_next: records.clone(),
            records,
            told: Some(self.told),
            ..RunObservation::default()
        }
    }
}
