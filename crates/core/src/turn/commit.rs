//! The end of a turn by a commit: the decision, the write, and the publication. A commit makes the messages of a turn
//! part of the session's conversation.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cause::{Cause, CauseKind};
use crate::decision::{CommitDecision, CommitPermit, CommitVerdict};
use crate::message::Message;
use crate::record::SessionRecord;
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::conversation::{Conversation, EndedTurn};
use crate::turn::draft::Draft;
use crate::turn::effects::LostTurn;
use crate::turn::state::{IllegalEvent, TurnEndKind, TurnState};
use crate::turn::stop::{StopEnding, StoppedTurn, lost_unless_written};
use crate::usage::Usage;

/// A turn that can only commit, and can no longer be stopped. Append [`PendingCommit::record`], then call
/// [`PendingCommit::publish`].
///
/// If the append has definitely failed, call [`PendingCommit::fail`] to end the turn. If the outcome of the append is
/// unknown, call [`PendingCommit::leave_unconfirmed`]. The holder must finish the commit even if no caller waits for
/// the result.
#[derive(Debug)]
#[must_use = "a commit that is neither published nor failed leaves a turn without an ending"]
pub struct PendingCommit {
    base: Arc<Conversation>,
    decision: Arc<CommitDecision>,
    state: TurnState,
    input: Arc<str>,
    record: SessionRecord,
    /// True if the log may have messages that a recovery keeps.
    may_keep: bool,
    /// Messages of the turn that the log verifiably has, and that a recovery keeps.
    kept_in_log: Vec<Arc<Message>>,
    _permit: CommitPermit,
}

/// A draft that was not committed and has not changed, with the reason.
#[derive(Debug)]
pub struct NotCommitted {
    /// The draft, which the caller must stop.
    pub draft: Draft,
    /// The reason.
    pub why: NotCommittedReason,
}

/// Reason why a draft was not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCommittedReason {
    /// The turn was stopped before the commit.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// A bug of the caller: the final answer is missing, or a call is open.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    /// A bug of the caller: the decision already permitted another commit.
    #[error("the decision has already fallen for a commit")]
    DecisionUsed,
}

impl Draft {
    /// Decides for the commit. Requires that the turn has its final answer and is not stopped.
    ///
    /// # Errors
    /// Returns the draft with the reason. If the turn was stopped, [stop](Draft::stop) the draft.
    pub fn commit(self, at: Timestamp) -> Result<PendingCommit, Box<NotCommitted>> {
        let answered = match self.messages_unseen {
            0 => self.check_step_answered(),
            _ => Err(IllegalEvent::NoAnswer),
        };
        if let Err(illegal) =
            answered.and_then(|()| self.state.check_ending(TurnEndKind::Committed))
        {
            return Err(Box::new(NotCommitted {
                draft: self,
                why: illegal.into(),
            }));
        }
        let permit = match self.decision.commit() {
            Ok(permit) => permit,
            Err(verdict) => {
                let why = match verdict {
                    CommitVerdict::Stop(cause) => NotCommittedReason::Stopped(cause),
                    CommitVerdict::Commit => NotCommittedReason::DecisionUsed,
                };
                return Err(Box::new(NotCommitted { draft: self, why }));
            }
        };
        let may_keep = self.may_have_kept_messages();
        let kept_in_log = self.messages_in_log().to_vec();
        let record = SessionRecord::TurnCommitted {
            turn: self.state.number(),
            at,
            messages: self.messages,
            usage: self.answered_usage,
        };
        Ok(PendingCommit {
            base: self.base,
            decision: self.decision,
            state: self.state,
            input: self.input,
            record,
            may_keep,
            kept_in_log,
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

impl PendingCommit {
    /// Record of the turn's end, which the caller must append.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// Usage of the turn: the metered total.
    pub fn metered(&self) -> Usage {
        self.state.metered()
    }

    /// State of the turn at the time of the decision.
    pub fn state(&self) -> &TurnState {
        &self.state
    }

    /// Calls that may have changed something, and that the conversation does not show if the record is not written.
    pub fn lost_unless_written(&self) -> Option<LostTurn> {
        let turn = (self.state.number(), &self.input);
        lost_unless_written(turn, self.state.effects(), &self.kept_in_log, false)
    }

    /// Returns the conversation with this turn. Call this function after the record is durable.
    pub fn publish(self) -> Arc<Conversation> {
        self.decision.settle_commit(true);
        match self.record {
            SessionRecord::TurnCommitted {
                messages, usage, ..
            } => self.base.after_turn(EndedTurn {
                turn: self.state.number(),
                input: &self.input,
                messages,
                usage,
                effects: self.state.effects(),
                is_refused: false,
            }),
            _ => unreachable!("a commit holds the record of a commit"),
        }
    }

    /// Returns the conversation before the turn, for an append with an unknown outcome. The decision stays
    /// [`Committing`](crate::decision::DecisionState::Committing) until the log is read again.
    pub fn leave_unconfirmed(self) -> Arc<Conversation> {
        self.base
    }

    /// Ends a turn whose commit could not be written, with the cause `failure` and this detail. The conversation is
    /// unchanged. If the outcome of the append is unknown, use [`PendingCommit::leave_unconfirmed`] instead.
    pub fn fail(self, detail: impl Into<Cow<'static, str>>, at: Timestamp) -> StoppedTurn {
        let Self {
            base,
            decision,
            state,
            input,
            may_keep,
            kept_in_log,
            ..
        } = self;
        decision.settle_commit(false);
        let ending = StopEnding {
            at,
            reason: StopReason::Error,
            cause: Cause::new(CauseKind::Failure).detail(detail),
            receipt: None,
            kept: Vec::new(),
            usage: Usage::default(),
        };
        StoppedTurn {
            may_keep,
            kept_in_log,
            ..StoppedTurn::new((base, &input), state, Vec::new(), ending)
        }
    }
}
