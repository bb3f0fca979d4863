//! Outcome of a run for the program that started it: an answer, a receipt, or a failure. A receipt is the result of a
//! stop.

use std::fmt;
use std::sync::Arc;

use allstop_core::{Cause, CauseKind, FinishReason, Receipt, StopReason, Usage};
use allstop_tools::Denial;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{TurnError, TurnErrorKind};
use crate::outcome::TurnOutcome;

/// Outcome of a run or of a message. A failure is never an empty answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[must_use = "the run may have failed, and the receipt lists the work that still runs"]
pub enum Outcome {
    /// The model has answered, and the turn is committed.
    Completed(Answer),
    /// A stop ended the turn: by a user, a newer message, a deadline, a parent, a disconnect or a shutdown.
    Stopped(Arc<Receipt>),
    /// The turn failed, or reached a limit, or a guardrail refused.
    Failed(RunFailure),
}

/// Answer of a completed turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Answer {
    /// Text of the answer.
    pub text: Arc<str>,
    /// Reason why the model ended the answer.
    pub finish: Option<FinishReason>,
    /// Number of steps.
    pub steps: u32,
    /// Metered usage.
    pub usage: Usage,
    /// Tool calls that were denied.
    pub denials: Vec<Denial>,
}

/// Failure of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct RunFailure {
    /// Reason of the end: an error, a limit, a guardrail or a loop.
    pub reason: StopReason,
    /// Kind of the error; `None` if no part failed, as for a limit.
    pub kind: Option<TurnErrorKind>,
    /// Message for people, in one line.
    pub message: String,
    /// Remedy, if one is known.
    pub hint: Option<String>,
    /// Receipt of the work that ran at the failure; `None` if none ran.
    pub receipt: Option<Arc<Receipt>>,
}

/// Outcome of a turn without an answer, as an error.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RunError {
    /// A stop ended the turn. The message is the sentence of the receipt.
    #[error("{0}")]
    Stopped(Arc<Receipt>),
    /// The turn failed.
    #[error(transparent)]
    Failed(Box<RunFailure>),
}

/// End of a turn, from which an [`Outcome`] is made.
#[derive(Debug, Clone)]
pub struct OutcomeParts {
    /// Reason of the end.
    pub stop_reason: StopReason,
    /// Cause of the end; `None` if the turn was committed.
    pub cause: Option<Cause>,
    /// The answer; used only if the turn completed.
    pub answer: Answer,
    /// Receipt of the stop.
    pub receipt: Option<Arc<Receipt>>,
    /// The failure, if there was one.
    pub error: Option<TurnError>,
}

impl Outcome {
    /// Converts the outcome to a result.
    ///
    /// # Errors
    /// If the turn was stopped or failed.
    pub fn into_result(self) -> Result<Answer, RunError> {
        match self {
            Self::Completed(answer) => Ok(answer),
            Self::Stopped(receipt) => Err(RunError::Stopped(receipt)),
            Self::Failed(failure) => Err(RunError::Failed(Box::new(failure))),
        }
    }

    /// The answer of a completed turn.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Completed(answer) => Some(answer),
            Self::Stopped(_) | Self::Failed(_) => None,
        }
    }

    /// Receipt of the stop, or of the work that ran at a failure.
    pub fn receipt(&self) -> Option<&Arc<Receipt>> {
        match self {
            Self::Completed(_) => None,
            Self::Stopped(receipt) => Some(receipt),
            Self::Failed(failure) => failure.receipt.as_ref(),
        }
    }

    pub(crate) fn of_bug(message: &str) -> Self {
        Self::Failed(RunFailure::bug(message))
    }
}

impl RunFailure {
    pub(crate) fn bug(message: &str) -> Self {
        let error = TurnError::bug(message);
        Self {
            reason: StopReason::Error,
            kind: Some(error.kind),
            message: error.message,
            hint: error.hint,
            receipt: None,
        }
    }
}

impl From<OutcomeParts> for Outcome {
    fn from(turn: OutcomeParts) -> Self {
        let is_stop = turn.cause.as_ref().is_some_and(|cause| is_stop(cause.kind));
        match (turn.stop_reason, turn.receipt) {
            (StopReason::Completed, _) => Self::Completed(turn.answer),
            (_, Some(receipt)) if is_stop && turn.error.is_none() => Self::Stopped(receipt),
            (reason, receipt) => {
                let message = match (&turn.error, &turn.cause) {
                    (Some(error), _) => error.message.clone(),
                    (None, Some(cause)) => cause.stopped_by(),
                    (None, None) => reason.as_str().replace('_', " "),
                };
                Self::Failed(RunFailure {
                    reason,
                    kind: turn.error.as_ref().map(|error| error.kind),
                    message,
                    hint: turn.error.and_then(|error| error.hint),
                    receipt,
                })
            }
        }
    }
}

/// True if the cause is a stop from outside of the turn.
fn is_stop(kind: CauseKind) -> bool {
    match kind {
        CauseKind::User
        | CauseKind::Superseded
        | CauseKind::Deadline
        | CauseKind::Inactivity
        | CauseKind::Parent
        | CauseKind::Shutdown
        | CauseKind::LeaseLost
        | CauseKind::Disconnect => true,
        CauseKind::Budget | CauseKind::Guardrail | CauseKind::Failure => false,
    }
}

impl From<TurnOutcome> for Outcome {
    fn from(turn: TurnOutcome) -> Self {
        Self::from(OutcomeParts {
            stop_reason: turn.stop_reason,
            cause: turn.cause,
            answer: Answer::new(turn.output)
                .finish(turn.finish)
                .metered(turn.steps, turn.usage)
                .denials(turn.denials),
            receipt: turn.receipt,
            error: turn.error,
        })
    }
}

impl Answer {
    /// An answer with this text.
    pub fn new(text: Arc<str>) -> Self {
        Self {
            text,
            finish: None,
            steps: 0,
            usage: Usage::default(),
            denials: Vec::new(),
        }
    }

    /// Reads the answer as JSON. With an [`AnswerSchema`](crate::AnswerSchema) of the type `T`, this succeeds.
    ///
    /// # Errors
    /// If the answer is not the JSON of a `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.text)
    }

    /// Sets the reason why the model ended the answer.
    #[must_use]
    pub fn finish(mut self, finish: Option<FinishReason>) -> Self {
        self.finish = finish;
        self
    }

    /// Sets the steps and the usage.
    #[must_use]
    pub fn metered(mut self, steps: u32, usage: Usage) -> Self {
        (self.steps, self.usage) = (steps, usage);
        self
    }

    /// Sets the denied calls.
    #[must_use]
    pub fn denials(mut self, denials: Vec<Denial>) -> Self {
        self.denials = denials;
        self
    }
}

/// The text of the answer.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
