//! The two ways a turn ends: its commit and its stop.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseKind};
use crate::decision::{CommitPermit, Verdict};
use crate::ids::CallId;
use crate::message::{Message, ToolCall, ToolResult};
use crate::receipt::{ConversationEffect, ItemState, Receipt};
use crate::record::{CallOutcome, SessionRecord};
use crate::stop_reason::StopReason;
use crate::time::Timestamp;
use crate::turn::conversation::Conversation;
use crate::turn::draft::Draft;
use crate::turn::state::{Ending, IllegalEvent, TurnEvent, TurnState};
use crate::usage::Usage;

/// What a stopped turn leaves of itself in the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopPolicy {
    /// Nothing.
    #[default]
    Rollback,
    /// The user's message, the completed steps and a marker of the stop, committed as one.
    Keep,
}

/// A turn that can no longer be stopped: append [`Commit::record`], then [`Commit::publish`].
///
/// If the append fails for good, [`Commit::fail`] gives the turn its ending instead. Whoever holds this finishes it,
/// whether or not somebody waits.
#[derive(Debug)]
#[must_use = "a commit that is neither published nor failed leaves a turn without an ending"]
pub struct Commit {
    base: Arc<Conversation>,
    before: TurnState,
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

/// What the one who stops a turn knows of it.
#[derive(Debug, Clone)]
pub struct TurnStop {
    /// The cause, if the decision has not fallen yet: the first one wins.
    pub cause: Cause,
    /// The reason that goes with this cause.
    pub reason: StopReason,
    /// What is left.
    pub policy: StopPolicy,
    /// When.
    pub at: Timestamp,
    /// What the scope found, where there was a stop to carry out.
    pub receipt: Option<Receipt>,
}

impl TurnStop {
    /// A stop for this cause and the reason that it gives, without a receipt.
    pub fn new(cause: Cause, policy: StopPolicy, at: Timestamp) -> Self {
        let reason = reason_of(&cause);
        Self {
            cause,
            reason,
            policy,
            at,
            receipt: None,
        }
    }
}

/// A turn that was stopped: append the records as one, then the conversation is what the session goes on with.
#[derive(Debug)]
#[must_use = "its records are the turn's ending"]
pub struct StoppedTurn {
    /// The ends of the calls that were open, then the turn's ending. Empty after a lost lease, whose ending the
    /// successor writes.
    pub records: Vec<SessionRecord>,
    /// What the session goes on with once the records are durable: the base itself, unless something was kept.
    pub conversation: Arc<Conversation>,
    /// What it goes on with if they could not be written.
    pub base: Arc<Conversation>,
    /// Why it ended.
    pub reason: StopReason,
    /// The first cause.
    pub cause: Cause,
    /// The receipt, with what became of the conversation and the metered usage of the turn.
    pub receipt: Option<Arc<Receipt>>,
    /// Where the turn was: steps, metered usage, calls whose outcome is unknown.
    pub state: TurnState,
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
            before: self.state,
            record,
            _permit: permit,
        })
    }

    /// Ends the turn by a stop. The first cause wins: if the decision fell for another one, that one and its reason
    /// are what the turn ends with.
    ///
    /// Calls that are still open end with it, as the receipt says of the item of their id, else as `unknown`. A
    /// guardrail's stop keeps nothing: what it refused must not reach the model with the next message.
    pub fn stop(mut self, stop: TurnStop) -> StoppedTurn {
        let (cause, reason) = self.decide_stop(stop.cause, stop.reason);
        let mut records = self.end_open_calls(stop.receipt.as_ref());
        let keeps = stop.policy == StopPolicy::Keep && reason != StopReason::Guardrail;
        let keeps = keeps && cause.kind != CauseKind::LeaseLost;
        let kept = if keeps {
            self.kept_messages(&cause)
        } else {
            Vec::new()
        };
        let usage = if keeps {
            self.answered_usage
        } else {
            Usage::default()
        };
        let base = Arc::clone(&self.base);
        let (conversation, effect) = if keeps {
            (
                base.with_turn(&kept, usage),
                ConversationEffect::KeptCompletedSteps,
            )
        } else {
            (base, ConversationEffect::Unchanged)
        };
        let receipt = stop.receipt.map(|receipt| {
            Arc::new(
                receipt
                    .with_conversation(effect)
                    .with_usage(self.state.metered()),
            )
        });
        let mut state = self.state;
        if state.apply(TurnEvent::Stopped(reason)).is_ok() {
            records.push(SessionRecord::TurnStopped {
                turn: state.number(),
                at: stop.at,
                reason,
                cause: cause.clone(),
                receipt: receipt.clone(),
                kept,
                usage,
            });
        }
        if cause.kind == CauseKind::LeaseLost {
            records.clear();
        }
        StoppedTurn {
            records,
            conversation,
            base: self.base,
            reason,
            cause,
            receipt,
            state,
        }
    }

    fn decide_stop(&self, cause: Cause, reason: StopReason) -> (Cause, StopReason) {
        self.decision.stop(cause.clone());
        match self.decision.stopped_by() {
            Some(first) if *first != cause => (first.clone(), reason_of(first)),
            _ if reason == StopReason::Completed => {
                let reason = reason_of(&cause);
                (cause, reason)
            }
            _ => (cause, reason),
        }
    }

    fn end_open_calls(&mut self, receipt: Option<&Receipt>) -> Vec<SessionRecord> {
        let open: Vec<CallId> = self
            .state
            .open_calls()
            .iter()
            .map(|call| call.id.clone())
            .collect();
        let ends = open.into_iter().map(|id| {
            let outcome = outcome_in(receipt, &id);
            self.end_call(id, outcome, None)
        });
        ends.filter_map(Result::ok).collect()
    }

    fn kept_messages(&mut self, cause: &Cause) -> Vec<Arc<Message>> {
        let mut kept = std::mem::take(&mut self.messages);
        if let Some(step) = self.step.take() {
            step.into_messages(&mut kept, |call| stopped_result(&self.state, call, cause));
        }
        let text = format!("The turn was stopped here: {cause}.");
        kept.push(Arc::new(Message::StopMarker { text: text.into() }));
        kept
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
        self.before.metered()
    }

    /// Where the turn was when it was decided.
    pub fn state(&self) -> &TurnState {
        &self.before
    }

    /// The conversation with this turn, once its record is durable.
    pub fn publish(self) -> Arc<Conversation> {
        match self.record {
            SessionRecord::TurnCommitted {
                messages, usage, ..
            } => self.base.with_turn(&messages, usage),
            _ => unreachable!("a commit holds the record of a commit"),
        }
    }

    /// The ending of a turn whose record could not be written, for a cause of the kind `failure`: the conversation is
    /// as it was. Not for an append whose outcome is not known; that one is repeated with its id.
    pub fn fail(self, cause: Cause, at: Timestamp) -> StoppedTurn {
        let mut state = self.before;
        let mut records = Vec::new();
        let reason = reason_of(&cause);
        if state.apply(TurnEvent::Stopped(reason)).is_ok() {
            records.push(SessionRecord::TurnStopped {
                turn: state.number(),
                at,
                reason,
                cause: cause.clone(),
                receipt: None,
                kept: Vec::new(),
                usage: Usage::default(),
            });
        }
        let conversation = Arc::clone(&self.base);
        StoppedTurn {
            records,
            conversation,
            base: self.base,
            reason,
            cause,
            receipt: None,
            state,
        }
    }
}

fn reason_of(cause: &Cause) -> StopReason {
    // A lost lease writes no ending; the answer that the caller gets here is that the turn could not go on.
    cause.kind.stop_reason().unwrap_or(StopReason::Error)
}

/// How an open call ended, as far as the receipt knows.
fn outcome_in(receipt: Option<&Receipt>, id: &CallId) -> CallOutcome {
    let item = receipt.and_then(|r| r.items().iter().find(|item| *item.id == *id.as_str()));
    match item.map(|item| &item.state) {
        Some(ItemState::Stopped { .. }) => CallOutcome::Stopped,
        _ => CallOutcome::Unknown,
    }
}

/// The result that a call gets which had none when its turn was stopped.
fn stopped_result(state: &TurnState, call: &ToolCall, cause: &Cause) -> ToolResult {
    let content = if !state.has_started(&call.id) {
        format!("Not run: the turn was stopped before ({cause}).")
    } else if state
        .unknown_calls()
        .iter()
        .any(|unknown| unknown.id == call.id)
    {
        format!(
            "Stopped ({cause}) without a result; it may have completed. Check before repeating it."
        )
    } else {
        format!("Stopped before it had a result ({cause}).")
    };
    ToolResult {
        call_id: call.id.clone(),
        content: content.into(),
        is_error: true,
    }
}
