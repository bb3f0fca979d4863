//! A message, from its sending to its outcome.

use std::sync::{Arc, OnceLock};

use allstop_agent::{Answer, Outcome, OutcomeParts, RunControls, TurnError, TurnOutcome};
use allstop_core::decision::{CommitDecision, CommitVerdict};
use allstop_core::receipt::ConversationEffect;
use allstop_core::turn::{LostTurn, StopPolicy};
use allstop_core::{
    Cause, FinishReason, Images, MessageId, Receipt, StopReason, TraceContext, TurnNumber, Usage,
};
use allstop_model::RequestHeaders;
use allstop_tools::Denial;
use futures::future::BoxFuture;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::follow_up::FollowUp;
use crate::queue::{Admission, MessageRefused};
use crate::stop_handle::SessionStop;

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Text of the message; may be empty if there are images.
    pub text: Arc<str>,
    /// Images of the message.
    pub images: Images,
    /// Id of the message, unique in its session; `None` for a new id. A sender that chooses the id can find the answer
    /// again after a crash ([`Session::committed_answer`](crate::Session::committed_answer)).
    pub id: Option<MessageId>,
    /// Policy for the case that a turn runs; `None` for the session's policy.
    pub policy: Option<FollowUp>,
    /// Deadline at which the running or waiting turn stops with cause `deadline`.
    pub deadline: Option<MessageDeadline>,
    /// Cause of a stop that reached the caller before the caller could send the message. If set, the turn ends at its
    /// start.
    pub stopped: Option<Cause>,
    /// W3C trace context of the message: the parent of the turn's span. The tools of the turn receive the context of their
    /// spans, or without an exporter this one. A stop does not change it.
    pub trace: Option<TraceContext>,
    /// Further headers of the turn's requests to the model. They have no effect if the message joins a running turn.
    pub headers: RequestHeaders,
}

/// Deadline of the turn of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDeadline {
    /// Time on Tokio's clock.
    pub at: Instant,
    /// Name of the deadline in receipts, such as `run deadline of 2s`.
    pub detail: Arc<str>,
}

impl NewMessage {
    /// Sets the deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Option<MessageDeadline>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Stops the message with this cause before its turn begins.
    #[must_use]
    pub fn stopped(mut self, cause: Option<Cause>) -> Self {
        self.stopped = cause;
        self
    }

    /// Sets the images.
    #[must_use]
    pub fn images(mut self, images: Images) -> Self {
        self.images = images;
        self
    }

    /// Sets further headers of the turn's requests to the model.
    #[must_use]
    pub fn headers(mut self, headers: RequestHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the policy.
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
            images: Images::default(),
            id: None,
            policy: None,
            deadline: None,
            stopped: None,
            trace: None,
            headers: RequestHeaders::default(),
        }
    }
}

/// Reason why a message was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The session does not accept the message now.
    #[error("message refused: {0}")]
    Refused(#[from] MessageRefused),
    /// The message has neither text nor images.
    #[error("the message is empty")]
    Empty,
    /// All work of this process is being stopped.
    #[error("message refused: stopped, {0}")]
    Stopped(Cause),
}

/// An accepted message. Dropping the handle stops nothing.
#[derive(Debug, Clone)]
pub struct MessageHandle {
    /// Id of the message in the log and in every event that the message causes.
    pub id: MessageId,
    /// Place of the message in the queue when the message was accepted.
    pub admission: Admission,
    pub(crate) state: Arc<MessageState>,
}

impl MessageHandle {
    /// Waits for the outcome of exactly this message.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future stops nothing.
    pub async fn outcome(&self) -> Arc<MessageOutcome> {
        self.state.outcome().await
    }

    /// The outcome, if it is set.
    pub fn try_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.state.try_outcome()
    }

    /// True after the turn of the message has begun.
    pub fn has_begun(&self) -> bool {
        self.state.has_begun()
    }
}

/// Waits for the answer, the receipt or the failure. Dropping the future stops nothing.
impl IntoFuture for MessageHandle {
    type Output = Outcome;
    type IntoFuture = BoxFuture<'static, Outcome>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Outcome::from(&*self.outcome().await) })
    }
}

impl From<&MessageOutcome> for Outcome {
    fn from(message: &MessageOutcome) -> Self {
        Self::from(OutcomeParts {
            stop_reason: message.stop_reason,
            cause: message.cause.clone(),
            answer: Answer::new(Arc::clone(&message.output))
                .finish(message.finish)
                .metered(message.steps, message.usage)
                .denials(message.denials.clone()),
            receipt: message.receipt.clone(),
            error: message.error.clone(),
        })
    }
}

/// Outcome of a message.
#[derive(Debug, Clone)]
pub struct MessageOutcome {
    /// The message.
    pub message: Option<MessageId>,
    /// Turn that the message caused or was handed to; `None` if the session could not be opened. The turn number orders
    /// the replies: a client that has seen a higher number drops this outcome.
    pub turn: Option<TurnNumber>,
    /// Reason for the end of the turn.
    pub stop_reason: StopReason,
    /// Cause of the ending; `None` if the turn was committed.
    pub cause: Option<Cause>,
    /// The answer; empty unless the turn completed.
    pub output: Arc<str>,
    /// Reason why the model ended the answer; `None` unless the turn completed.
    pub finish: Option<FinishReason>,
    /// Metered usage.
    pub usage: Usage,
    /// Receipt of the stop; `None` if there was nothing to stop.
    pub receipt: Option<Arc<Receipt>>,
    /// The failure; `None` if the turn did not fail.
    pub error: Option<TurnError>,
    /// Tool calls that were denied.
    pub denials: Vec<Denial>,
    /// Number of steps of the turn.
    pub steps: u32,
    /// Calls of the turn that may have changed something, if the conversation does not show them. The next turn reports
    /// them to the model.
    pub lost: Option<LostTurn>,
    /// True if the store has confirmed whether the turn's ending is written.
    pub is_ending_known: bool,
    /// True if the log contains the turn's ending.
    pub is_ending_written: bool,
}

impl MessageOutcome {
    /// True if the message was answered.
    pub fn is_completed(&self) -> bool {
        self.stop_reason == StopReason::Completed
    }

    /// Confirmed effect of a stopped turn on the conversation.
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
            lost: turn.lost.clone(),
            is_ending_known: turn.is_ending_known,
            is_ending_written: turn.is_ending_written,
        }
    }

    /// Outcome of a message before its turn has ended, as far as it is known. `stopping` is the requested stop.
    pub(crate) fn provisional(sent: &MessageHandle, stopping: Option<&SessionStop>) -> Self {
        if let Some(ended) = sent.state.ended_turn() {
            return Self {
                message: Some(sent.id.clone()),
                receipt: stopping.map(SessionStop::account_now).or(ended.receipt),
                ..ended
            };
        }
        let cause = match sent.state.decision.verdict() {
            Some(CommitVerdict::Commit) => None,
            Some(CommitVerdict::Stop(cause)) => Some(cause.clone()),
            None => stopping.map(|stopping| stopping.request().cause.clone()),
        };
        let reason = cause.as_ref().and_then(|cause| cause.kind.stop_reason());
        let interrupted = sent.state.controls.interrupted_turn();
        // Ignores the interruption if another stop came first.
        let interrupted = interrupted.filter(|turn| cause.as_ref() == Some(&turn.cause));
        let (reason, failed) = match interrupted {
            Some(turn) => (Some(turn.reason), turn.error),
            None => (reason, None),
        };
        let is_unknown = sent.state.conversation_now() == ConversationEffect::Unknown;
        let unwritten = sent.state.controls.unwritten_ending();
        Self {
            turn: sent.state.turn.get().copied(),
            stop_reason: reason.unwrap_or(StopReason::Error),
            error: if cause.is_none() || is_unknown {
                Some(TurnError::ending_unknown())
            } else if unwritten.is_some() {
                failed.or_else(|| Some(TurnError::stop_unconfirmed()))
            } else {
                failed
            },
            cause,
            usage: sent.state.usage_now(),
            steps: sent.state.controls.steps(),
            receipt: stopping.map(SessionStop::account_now),
            is_ending_known: false,
            lost: unwritten.and_then(|ending| ending.lost),
            ..Self::error_only(Some(sent.id.clone()))
        }
    }

    /// Outcome of a requested compaction, or of a question outside the conversation, for the receipt of a stop.
    pub(crate) fn of_model_command(
        stop_reason: StopReason,
        is_ending_known: bool,
        usage: Usage,
    ) -> Self {
        Self {
            stop_reason,
            usage,
            is_ending_known,
            ..Self::error_only(None)
        }
    }

    /// Outcome of a message without a turn.
    pub(crate) fn failed(message: Option<MessageId>, error: TurnError) -> Self {
        Self {
            error: Some(error),
            ..Self::error_only(message)
        }
    }

    /// Error outcome without any details.
    fn error_only(message: Option<MessageId>) -> Self {
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
            lost: None,
            is_ending_known: true,
            is_ending_written: false,
        }
    }
}

/// Outcome of a message, once the outcome is set. Until then, the state of the message's turn.
#[derive(Debug, Default)]
pub(crate) struct MessageState {
    outcome: SetOnce<Arc<MessageOutcome>>,
    /// Number of the turn, once the turn has begun.
    turn: OnceLock<TurnNumber>,
    decision: Arc<CommitDecision>,
    controls: Arc<RunControls>,
}

impl MessageState {
    pub(crate) fn new(decision: Arc<CommitDecision>, controls: Arc<RunControls>) -> Self {
        Self {
            decision,
            controls,
            ..Self::default()
        }
    }

    /// Sets the number of the turn at its start.
    pub(crate) fn begin(&self, turn: TurnNumber) {
        // A message has only one turn.
        let _ = self.turn.set(turn);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.turn.get().is_some()
    }

    /// True if the store has confirmed or refused the turn's ending.
    pub(crate) fn is_settled(&self) -> bool {
        self.outcome
            .get()
            .is_some_and(|outcome| outcome.is_ending_known)
    }

    pub(crate) fn try_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.outcome.get().cloned()
    }

    /// Outcome of the message; while the hooks after the turn still run, the outcome of the turn.
    pub(crate) fn known_outcome(&self) -> Option<Arc<MessageOutcome>> {
        self.try_outcome()
            .or_else(|| self.ended_turn().map(Arc::new))
    }

    /// Outcome of a turn that has ended, while its hooks still run.
    fn ended_turn(&self) -> Option<MessageOutcome> {
        let turn = self.controls.ended_turn()?;
        Some(MessageOutcome::of_turn(None, &turn))
    }

    /// Metered usage so far. Marked as estimated, because before the end of the turn a model call with unknown usage
    /// may be running.
    fn usage_now(&self) -> Usage {
        Usage {
            estimated: true,
            ..self.controls.usage()
        }
    }

    /// Confirmed effect on the conversation before the end of the turn. A rolled-back turn changes nothing, even if its
    /// ending is not written.
    fn conversation_now(&self) -> ConversationEffect {
        let policy = match self.decision.verdict() {
            Some(CommitVerdict::Stop(cause)) => self.controls.stop_policy(cause),
            Some(CommitVerdict::Commit) | None => None,
        };
        match policy {
            Some(StopPolicy::Rollback) => ConversationEffect::Unchanged,
            Some(StopPolicy::Keep) | None => ConversationEffect::Unknown,
        }
    }

    /// Adds the effect on the conversation and the usage, as known now, to the receipt of a stop of this message's
    /// turn.
    pub(crate) fn complete_now(&self, receipt: &Receipt) -> Receipt {
        let (conversation, usage) = match self.known_outcome() {
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

    /// Sets the outcome. Only the first call has an effect.
    pub(crate) fn resolve(&self, outcome: MessageOutcome) {
        drop(self.outcome.set(Arc::new(outcome)));
    }
}
