//! Compaction: replaces the oldest messages of a conversation by a summary, between two turns.

use std::sync::Arc;

use allstop_agent::{SummaryError, TurnError};
use allstop_core::turn::Conversation;
use allstop_core::{StopReason, Usage};
use allstop_log::SessionError;

use crate::queue::MessageRefused;

/// Limits of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionLimits {
    /// Maximum length of the conversation in tokens, estimated at four bytes per token. A longer conversation is
    /// compacted before the next turn.
    pub tokens_max: u64,
    /// Number of newest turns that a compaction keeps unchanged.
    pub turns_kept: u32,
}

impl Default for CompactionLimits {
    /// The token limit is half of the context window of common models. The kept turns are enough to keep the topic
    /// clear.
    fn default() -> Self {
        Self {
            tokens_max: 64_000,
            turns_kept: 4,
        }
    }
}

impl CompactionLimits {
    /// Sets the maximum length of the conversation in tokens.
    #[must_use]
    pub fn tokens_max(mut self, tokens_max: u64) -> Self {
        self.tokens_max = tokens_max;
        self
    }

    /// Sets the number of newest turns that a compaction keeps unchanged.
    #[must_use]
    pub fn turns_kept(mut self, turns_kept: u32) -> Self {
        self.turns_kept = turns_kept;
        self
    }
}

/// Result of a compaction, as recorded in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionResult {
    /// Number of dropped messages.
    pub messages_dropped: u32,
    /// Number of dropped turns. The limit for the number of turns still counts them.
    pub turns_dropped: u32,
    /// Summary that replaces the dropped messages.
    pub summary: Arc<str>,
    /// Usage of the model call for the summary.
    pub usage: Usage,
}

/// Reason why nothing was compacted. The conversation is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Another compaction, or a question outside the conversation, runs or waits.
    #[error("a compaction or a question outside the conversation already runs")]
    Busy,
    /// The conversation has no turns, or at most as many turns as an automatic compaction keeps.
    #[error("the conversation is too short: only {}", turn_count(*.0))]
    TooShort(usize),
    /// The model has made no summary.
    #[error(transparent)]
    NoSummary(#[from] SummaryError),
    /// The log failed or rejected the request.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error(transparent)]
    NotOpen(TurnError),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] MessageRefused),
}

impl CompactError {
    pub(crate) fn stop_reason(&self) -> StopReason {
        match self {
            Self::NoSummary(SummaryError::Stopped(cause)) => {
                cause.kind.stop_reason().unwrap_or(StopReason::Error)
            }
            _ => StopReason::Error,
        }
    }

    /// True if the log may contain the summary.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Session(SessionError::Indeterminate))
    }
}

fn turn_count(turns: usize) -> String {
    format!("{turns} turn{}", if turns == 1 { "" } else { "s" })
}

/// Number of newest turns that a requested compaction keeps: `turns_kept`, or fewer in a shorter conversation, because a
/// single long turn can fill the context of the model.
pub(crate) fn turns_kept_on_request(conversation: &Conversation, turns_kept: u32) -> u32 {
    let turns = u32::try_from(conversation.spans.len()).unwrap_or(u32::MAX);
    turns_kept.min(turns.saturating_sub(1))
}
