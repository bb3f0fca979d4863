//! A message from its sending to its outcome.

use std::sync::{Arc, OnceLock};

use allstop_agent::{Denial, RunControls, TurnError, TurnOutcome};
use allstop_core::decision::{Decision, Verdict};
use allstop_core::receipt::ConversationEffect;
use allstop_core::turn::StopPolicy;
use allstop_core::{Cause, FinishReason, MessageId, Receipt, StopReason, TurnNumber, Usage};
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::desk::{Admission, NotAdmitted};
use crate::follow_up::FollowUp;
use crate::stopping::Stopping;

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The words.
    pub text: Arc<str>,
    /// Its policy if a turn runs; `None`: the session's policy.
    pub policy: Option<FollowUp>,
    /// When its turn stops by itself, with the cause `deadline`, whether it runs by then or waits.
    pub deadline: Option<MessageDeadline>,
    /// Set where its turn is to end at its entry: what it belongs to was stopped before it could be sent.
    pub stopped: Option<Cause>,
    /// The W3C trace context that it was sent in (`traceparent`). The tools of its turn get it; a stop never cancels it.
    pub trace: Option<Arc<str>>,
}

/// A moment at which the turn of a message stops by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDeadline {
    /// When, on tokio's clock.
    pub at: Instant,
    /// The deadline as receipts name it: `run deadline of 2s`.
    pub detail: Arc<str>,
}

impl NewMessage {
    /// The same, with a deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Option<MessageDeadline>) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same, stopped with this cause before its turn begins.
    #[must_use]
    pub fn stopped(mut self, cause: Option<Cause>) -> Self {
        self.stopped = cause;
        self
    }

    /// The same, with a policy of its own.
    #[must_use]
    pub fn policy(mut self, policy: FollowUp) -> Self {
        self.policy = Some(policy);
        self
    }
}

impl<T: Into<Arc<str>>> From<T> for NewMessage {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            policy: None,
            deadline: None,
            stopped: None,
            trace: None,
        }
    }
}

/// Reason that a message was not taken. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The session does not take it now.
    #[error("the message was not taken: {0}")]
    NotAdmitted(#[from] NotAdmitted),
    /// There is nothing in it.
    #[error("the message is empty")]
    Empty,
    /// All that runs here is being stopped.
    #[error("the message was not taken: stopped, {0}")]
    Stopped(Cause),
}

/// A message that was taken. Dropping this stops nothing.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Its id: in the log, and in every event that it causes.
    pub id: MessageId,
    /// Its place at first.
    pub admission: Admission,
    pub(crate) state: Arc<MessageState>,
}

impl Sent {
    /// Waits for what the message came to: this one, and never another.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping it stops nothing.
    pub async fn outcome(&self) -> Arc<MessageOutcome> {
        self.state.outcome().await
    }

    /// The outcome, if it is there.
    pub fn try_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.state.try_outcome()
    }
}

/// The outcome of a message.
#[derive(Debug, Clone)]
pub struct MessageOutcome {
    /// The message.
    pub message: Option<MessageId>,
    /// The turn that it caused, or that it was handed to. It is the epoch of the reply: whoever has seen a higher one
    /// drops this. `None`: the session could not be opened.
    pub turn: Option<TurnNumber>,
    /// Reason for the end of the turn.
    pub stop_reason: StopReason,
    /// The cause, of any ending but a commit.
    pub cause: Option<Cause>,
    /// The answer; empty unless the turn completed.
    pub output: Arc<str>,
    /// The model's reason for ending that answer; `None` unless the turn completed.
    pub finish: Option<FinishReason>,
    /// The metered usage.
    pub usage: Usage,
    /// The receipt, where something had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// The failure.
    pub error: Option<TurnError>,
    /// Calls that somebody said no to.
    pub denials: Vec<Denial>,
    /// Number of steps that the turn took.
    pub steps: u32,
    /// Whether the store has said that the turn's ending is written, or that it is not.
    pub is_ending_known: bool,
}

impl MessageOutcome {
    /// Whether it was answered.
    pub fn is_completed(&self) -> bool {
        self.stop_reason == StopReason::Completed
    }

    /// The confirmed effect on the conversation after the turn was stopped.
    pub fn conversation_effect(&self) -> ConversationEffect {
        match &self.receipt {
            Some(receipt) => receipt.conversation(),
            None if self.is_ending_known => ConversationEffect::Unchanged,
            None => ConversationEffect::Unknown,
        }
    }

    pub(crate) fn of_turn(message: Option<MessageId>, turn: &TurnOutcome) -> Self {
        Self {
            message,
            turn: Some(turn.turn),
            stop_reason: turn.stop_reason,
            cause: turn.cause.clone(),
            output: Arc::clone(&turn.output),
            finish: turn.finish,
            usage: turn.usage,
            receipt: turn.receipt.clone(),
            error: turn.error.clone(),
            denials: turn.denials.clone(),
            steps: turn.steps,
            is_ending_known: turn.is_ending_known,
        }
    }

    /// The known part of the outcome of a message without one. `stopping`: the stop that was asked for.
    pub(crate) fn not_ended(sent: &Sent, stopping: Option<&Stopping>) -> Self {
        if let Some(ended) = sent.state.ended_turn() {
            return Self {
                message: Some(sent.id.clone()),
                receipt: stopping.map(Stopping::account_now).or(ended.receipt),
                ..ended
            };
        }
        let cause = match sent.state.decision.verdict() {
            Some(Verdict::Commit) => None,
            Some(Verdict::Stop(cause)) => Some(cause.clone()),
            None => stopping.map(|stopping| stopping.request().cause.clone()),
        };
        let reason = cause.as_ref().and_then(|cause| cause.kind.stop_reason());
        let interrupted = sent.state.controls.interrupted_turn();
        // A stop may have been first all the same.
        let interrupted = interrupted.filter(|turn| cause.as_ref() == Some(&turn.cause));
        let (reason, failed) = match interrupted {
            Some(turn) => (Some(turn.reason), turn.error),
            None => (reason, None),
        };
        let is_unknown = sent.state.conversation_now() == ConversationEffect::Unknown;
        Self {
            turn: sent.state.turn.get().copied(),
            stop_reason: reason.unwrap_or(StopReason::Error),
            error: if cause.is_none() || is_unknown {
                Some(TurnError::ending_unknown())
            } else {
                failed
            },
            cause,
            usage: sent.state.usage_now(),
            steps: sent.state.controls.steps(),
            receipt: stopping.map(Stopping::account_now),
            is_ending_known: false,
            ..Self::nothing(Some(sent.id.clone()))
        }
    }

    /// Of a message that never got as far as a turn.
    pub(crate) fn failed(message: Option<MessageId>, error: TurnError) -> Self {
        Self {
            error: Some(error),
            ..Self::nothing(message)
        }
    }

    /// An error without a word.
    fn nothing(message: Option<MessageId>) -> Self {
        Self {
            message,
            turn: None,
            stop_reason: StopReason::Error,
            cause: None,
            output: "".into(),
            finish: None,
            usage: Usage::default(),
            receipt: None,
            error: None,
            denials: Vec::new(),
            steps: 0,
            is_ending_known: true,
        }
    }
}

/// Where the outcome of a message will be, and what is known of its turn until then.
#[derive(Debug, Default)]
pub(crate) struct MessageState {
    outcome: SetOnce<Arc<MessageOutcome>>,
    /// The number of its turn, once that has begun.
    turn: OnceLock<TurnNumber>,
    decision: Arc<Decision>,
    controls: Arc<RunControls>,
}

impl MessageState {
    pub(crate) fn new(decision: Arc<Decision>, controls: Arc<RunControls>) -> Self {
        Self {
            decision,
            controls,
            ..Self::default()
        }
    }

    /// Its turn begins.
    pub(crate) fn begin(&self, turn: TurnNumber) {
        // A message has one turn.
        let _ = self.turn.set(turn);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.turn.get().is_some()
    }

    /// Whether the turn has an ending that the store has confirmed or refused.
    pub(crate) fn is_settled(&self) -> bool {
        self.outcome
            .get()
            .is_some_and(|outcome| outcome.is_ending_known)
    }

    fn try_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.outcome.get().cloned()
    }

    /// The outcome of its turn, where only the turn's hooks are not told yet.
    fn ended_turn(&self) -> Option<MessageOutcome> {
        let turn = self.controls.ended_turn()?;
        Some(MessageOutcome::of_turn(None, &turn))
    }

    /// Metered usage so far. Until the turn has its ending a model call may be under way whose usage nobody has told.
    fn usage_now(&self) -> Usage {
        Usage {
            estimated: true,
            ..self.controls.usage()
        }
    }

    /// The confirmed effect on the conversation before the turn has its ending: a turn that is stopped and rolled back
    /// changes nothing, whether or not its ending is written.
    fn conversation_now(&self) -> ConversationEffect {
        let policy = match self.decision.verdict() {
            Some(Verdict::Stop(cause)) => self.controls.stop_policy(cause),
            Some(Verdict::Commit) | None => None,
        };
        match policy {
            Some(StopPolicy::Rollback) => ConversationEffect::Unchanged,
            Some(StopPolicy::Keep) | None => ConversationEffect::Unknown,
        }
    }

    /// The receipt of a stop of this message's turn, with what is known at this moment of the conversation and of what
    /// was used.
    pub(crate) fn complete_now(&self, receipt: &Receipt) -> Receipt {
        let known = self
            .try_outcome()
            .or_else(|| self.ended_turn().map(Arc::new));
        let (conversation, usage) = match known {
            Some(outcome) => (outcome.conversation_effect(), outcome.usage),
            None => (self.conversation_now(), self.usage_now()),
        };
        receipt
            .clone()
            .with_conversation(conversation)
            .with_usage(usage)
    }

    pub(crate) async fn outcome(&self) -> Arc<MessageOutcome> {
        Arc::clone(self.outcome.wait().await)
    }

    /// Says what it came to. The first one to say it decides.
    pub(crate) fn resolve(&self, outcome: MessageOutcome) {
        drop(self.outcome.set(Arc::new(outcome)));
    }
}
