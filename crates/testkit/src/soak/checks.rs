//! What must hold of a session's records, whatever was done to it.

use std::collections::BTreeMap;

use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;
use allstop_core::{MessageId, SessionId, StopReason, TurnNumber};
use allstop_session::MessageOutcome;

use crate::check::{background, conversation_of, endings, history, recovers_from_everywhere};

/// Cutting the records after each costs their square: for longer ones it is left to others.
const CUT_RECORDS_MAX: usize = 160;

/// A session from life to life.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) id: SessionId,
    pub(super) is_made: bool,
    /// Messages that were taken, those that a crash lost included.
    pub(super) messages: u64,
    outcomes: BTreeMap<MessageId, Told>,
}

/// What somebody was told of a message.
#[derive(Debug)]
struct Told {
    turn: Option<TurnNumber>,
    reason: StopReason,
    output: String,
    /// Hours passed at once between the message and its outcome. An append that was under way took those hours: longer
    /// than an ending waits for its store, and then recovery may be the one to write it.
    has_jumped: bool,
}

impl Kept {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            is_made: false,
            messages: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// Keeps what a message came to.
    pub(super) fn came_to(
        &mut self,
        id: &MessageId,
        outcome: &MessageOutcome,
        has_jumped: bool,
    ) -> Result<(), String> {
        if outcome.message.as_ref() != Some(id) {
            return Err(format!(
                "{id} was given the outcome of {:?}",
                outcome.message
            ));
        }
        let told = Told {
            turn: outcome.turn,
            reason: outcome.stop_reason,
            output: outcome.output.to_string(),
            has_jumped,
        };
        self.outcomes.insert(id.clone(), told);
        Ok(())
    }

    /// Checks the records of a session that is closed.
    pub(super) fn check(&self, records: &[R]) -> Result<(), String> {
        endings(records)?;
        let said = conversation_of(records);
        history(&said)?;
        let open = background(records)?;
        if !open.is_empty() {
            return Err(format!("it is closed, and {} has no end", open.join(", ")));
        }
        let state = SessionState::fold(records).map_err(|wrong| wrong.to_string())?;
        if state.conversation().messages != said {
            return Err("the fold of the log is not what the records say".to_owned());
        }
        if records.len() <= CUT_RECORDS_MAX {
            recovers_from_everywhere(records)?;
        }
        self.outcomes_are_those_of(records)
    }

    /// Each message is in one turn at most, and its outcome is that turn's.
    fn outcomes_are_those_of(&self, records: &[R]) -> Result<(), String> {
        let mut turn_of = BTreeMap::new();
        let mut endings = BTreeMap::new();
        for record in records {
            match record {
                R::TurnStarted {
                    turn,
                    message: Some(message),
                    ..
                }
                | R::MessageSteered { turn, message, .. } => {
                    if let Some(other) = turn_of.insert(message, *turn) {
                        return Err(format!("{message} is in the turns {other} and {turn}"));
                    }
                }
                R::TurnCommitted { turn, .. } => {
                    endings.insert(*turn, StopReason::Completed);
                }
                R::TurnStopped { turn, reason, .. } => {
                    endings.insert(*turn, *reason);
                }
                _ => {}
            }
        }
        for (id, told) in &self.outcomes {
            let Told { turn, reason, .. } = told;
            let in_log = turn_of.get(id).copied();
            if *turn != in_log {
                return Err(format!("{id} is in {in_log:?}, and was told {turn:?}"));
            }
            let ended = turn.and_then(|turn| endings.get(&turn).copied());
            let by_recovery = told.has_jumped && ended == Some(StopReason::Error);
            if ended.is_some_and(|ended| ended != *reason) && !by_recovery {
                return Err(format!("{id} ended as {ended:?}, and was told {reason:?}"));
            }
            if !told.output.is_empty() && *reason != StopReason::Completed {
                let output = &told.output;
                return Err(format!("{id} ended as {reason:?}, and was told {output:?}"));
            }
        }
        Ok(())
    }
}
