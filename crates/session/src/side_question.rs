//! Questions to the model outside the conversation, between two turns.

use allstop_agent::{PlainAnswerError, TurnError};
use allstop_core::StopReason;
use allstop_log::SessionError;

use crate::queue::MessageRefused;

/// Reason why a question outside the conversation has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SideQuestionError {
    /// Another question, or a compaction, runs or waits.
    #[error("another question or a compaction already runs")]
    Busy,
    /// The model returned no answer, or a stop came first.
    #[error(transparent)]
    NoAnswer(#[from] PlainAnswerError),
    /// The log failed or rejected the usage of the question.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error(transparent)]
    NotOpen(TurnError),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] MessageRefused),
}

impl SideQuestionError {
    pub(crate) fn stop_reason(&self) -> StopReason {
        match self {
            Self::NoAnswer(PlainAnswerError::Stopped(cause)) => {
                cause.kind.stop_reason().unwrap_or(StopReason::Error)
            }
            _ => StopReason::Error,
        }
    }
}
