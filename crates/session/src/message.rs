//! A message from its sending to its outcome.

use std::sync::Arc;

use allstop_agent::{Denial, TurnError, TurnOutcome};
use allstop_core::receipt::ConversationEffect;
use allstop_core::{Cause, MessageId, Receipt, StopReason, TurnNumber, Usage};
use tokio::sync::SetOnce;

use crate::desk::{Admission, NotAdmitted};
use crate::follow_up::FollowUp;

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// The words.
    pub text: Arc<str>,
    /// What it does if a turn runs; `None`: what the session's policy says.
    pub policy: Option<FollowUp>,
    /// The W3C trace context that it was sent in (`traceparent`). The tools of its turn get it; a stop never cancels it.
    pub trace: Option<Arc<str>>,
}

impl NewMessage {
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
            trace: None,
        }
    }
}

/// Why a message was not taken. Nothing was changed.
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
    /// What became of it at first.
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

    /// What it came to, if it has.
    pub fn try_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.state.known_outcome().cloned()
    }
}

/// What a message came to.
#[derive(Debug, Clone)]
pub struct MessageOutcome {
    /// The message.
    pub message: Option<MessageId>,
    /// The turn that it caused, or that it was handed to. It is the epoch of the reply: whoever has seen a higher one
    /// drops this. `None`: the session could not be opened.
    pub turn: Option<TurnNumber>,
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// The cause, of any ending but a commit.
    pub cause: Option<Cause>,
    /// The answer; empty unless the turn completed.
    pub output: Arc<str>,
    /// The metered usage.
    pub usage: Usage,
    /// What stopped and what did not, where something had to be stopped.
    pub receipt: Option<Arc<Receipt>>,
    /// What failed.
    pub error: Option<TurnError>,
    /// Calls that somebody said no to.
    pub denials: Vec<Denial>,
    /// How many steps the turn took.
    pub steps: u32,
    /// Whether the store has said that the turn's ending is written, or that it is not.
    pub is_ending_known: bool,
}

impl MessageOutcome {
    /// Whether it was answered.
    pub fn is_completed(&self) -> bool {
        self.stop_reason == StopReason::Completed
    }

    /// What is confirmed of the conversation after the turn was stopped.
    pub(crate) fn conversation_effect(&self) -> ConversationEffect {
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
            usage: turn.usage,
            receipt: turn.receipt.clone(),
            error: turn.error.clone(),
            denials: turn.denials.clone(),
            steps: turn.steps,
            is_ending_known: turn.is_ending_known,
        }
    }

    /// Of a message that never got as far as a turn.
    pub(crate) fn failed(message: Option<MessageId>, error: TurnError) -> Self {
        Self {
            message,
            turn: None,
            stop_reason: StopReason::Error,
            cause: None,
            output: "".into(),
            usage: Usage::default(),
            receipt: None,
            error: Some(error),
            denials: Vec::new(),
            steps: 0,
            is_ending_known: true,
        }
    }
}

/// Where the outcome of a message will be.
#[derive(Debug, Default)]
pub(crate) struct MessageState {
    outcome: SetOnce<Arc<MessageOutcome>>,
}

impl MessageState {
    pub(crate) async fn outcome(&self) -> Arc<MessageOutcome> {
        Arc::clone(self.outcome.wait().await)
    }

    /// What it came to, if that is known.
    pub(crate) fn known_outcome(&self) -> Option<&Arc<MessageOutcome>> {
        self.outcome.get()
    }

    /// Says what it came to. The first one to say it decides.
    pub(crate) fn resolve(&self, outcome: MessageOutcome) {
        drop(self.outcome.set(Arc::new(outcome)));
    }
}
