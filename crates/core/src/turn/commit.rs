//! A turn's ending by its commit: decided, then written, then published.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cause::{Cause, CauseKind};
use crate::decision::{CommitPermit, Verdict};
use crate::record::SessionRecord;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::conversation::Conversation;
use crate::turn::draft::Draft;
use crate::turn::state::{Ending, IllegalEvent, TurnEvent, TurnState};
use crate::turn::stop::{StoppedTurn, rolled_back};
use crate::usage::Usage;

/// A turn that can no longer be stopped: append [`Commit::record`], then [`Commit::publish`].
///
/// If the append fails for good, [`Commit::fail`] gives the turn its ending instead. Whoever holds this finishes it,
/// whether or not somebody waits.
#[derive(Debug)]
#[must_use = "a commit that is neither published nor failed leaves a turn without an ending"]
pub struct Commit {
    base: Arc<Conversation>,
    state: TurnState,
    record: SessionRecord,
    _permit: CommitPermit,
}

/// A draft that was not committed, unchanged.
#[derive(Debug)]
pub struct NotCommitted {
    /// To be stopped.
    pub draft: Draft,
    /// Why.
    pub why: NotCommittedWhy,
}

/// Why a draft was not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCommittedWhy {
    /// A stop was first.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// A bug of the driver: there is no final answer, or a call is open.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    /// A bug of the driver: the decision served another commit.
    #[error("the decision has already fallen for a commit")]
    DecisionUsed,
}

impl Draft {
    /// Decides for the commit, if the turn has its final answer and no stop was first.
    ///
    /// # Errors
    /// The draft, with the reason; after a stop it is to be [stopped](Draft::stop).
    pub fn commit(self, at: Timestamp) -> Result<Commit, Box<NotCommitted>> {
        let answered = self.check_step_answered();
        if let Err(illegal) = answered.and_then(|()| self.state.check_ending(Ending::Committed)) {
            return Err(Box::new(NotCommitted {
                draft: self,
                why: illegal.into(),
            }));
        }
        let permit = match self.decision.commit() {
            Ok(permit) => permit,
            Err(verdict) => {
                let why = match verdict {
                    Verdict::Stop(cause) => NotCommittedWhy::Stopped(cause),
                    Verdict::Commit => NotCommittedWhy::DecisionUsed,
                };
                return Err(Box::new(NotCommitted { draft: self, why }));
            }
        };
        let record = SessionRecord::TurnCommitted {
            turn: self.state.number(),
            at,
            messages: self.messages,
            usage: self.answered_usage,
        };
        Ok(Commit {
            base: self.base,
            state: self.state,
            record,
            _permit: permit,
        })
    }

    fn check_step_answered(&self) -> Result<(), IllegalEvent> {
        match self.step.as_ref().and_then(|step| step.unanswered().next()) {
            Some(call) => Err(IllegalEvent::CallOpen(call.id.clone())),
            None => Ok(()),
        }
    }
}

impl Commit {
    /// The turn's ending, to be appended.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// What the turn used: the metered ledger.
    pub fn metered(&self) -> Usage {
        self.state.metered()
    }

    /// Where the turn was when it was decided.
    pub fn state(&self) -> &TurnState {
        &self.state
    }

    /// The conversation with this turn, once its record is durable.
    pub fn publish(self) -> Arc<Conversation> {
        match self.record {
            SessionRecord::TurnCommitted {
                messages, usage, ..
            } => self.base.with_turn(self.state.number(), messages, usage),
            _ => unreachable!("a commit holds the record of a commit"),
        }
    }

    /// The ending of a turn whose record could not be written, with the cause `failure` and this detail: the
    /// conversation is as it was. Not for an append whose outcome is not known; that one is repeated with its id.
    pub fn fail(self, detail: impl Into<Cow<'static, str>>, at: Timestamp) -> StoppedTurn {
        let Self {
            base, mut state, ..
        } = self;
        let (cause, reason) = (
            Cause::new(CauseKind::Failure).detail(detail),
            StopReason::Error,
        );
        let record = rolled_back(state.number(), at, reason, cause.clone());
        state
            .apply(TurnEvent::Stopped(reason))
            .expect("it could be committed, so no call is open");
        let (records, conversation) = (vec![record], Arc::clone(&base));
        StoppedTurn {
            records,
            conversation,
            base,
            reason,
            cause,
            receipt: None,
            state,
        }
    }
}
