//! Replacing the oldest messages of a conversation by a summary, between two turns.

use std::sync::Arc;

use allstop_core::turn::Conversation;
use allstop_core::{Cause, Usage};
use allstop_log::SessionError;

use crate::desk::NotAdmitted;

/// When old messages are replaced by a summary, and how much stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// It happens before a turn when the conversation is longer than this, estimated at four bytes a token.
    pub tokens_max: u64,
    /// Number of newest turns that stay word by word.
    pub turns_kept: u32,
}

impl Default for Compaction {
    /// Half of what common models read at once, and enough turns to see what the talk is about.
    fn default() -> Self {
        Self {
            tokens_max: 64_000,
            turns_kept: 4,
        }
    }
}

/// Result of a compaction. The log has the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Number of messages.
    pub messages_dropped: u32,
    /// Number of turns that they were. They still count where turns are counted.
    pub turns_dropped: u32,
    /// Summary that stands in their place.
    pub summary: Arc<str>,
    /// Usage of the summary.
    pub usage: Usage,
}

/// Reason that nothing was compacted. The conversation is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// Not more turns than stay anyway.
    #[error("there is nothing to compact: only {0} turns are there word by word")]
    TooShort(usize),
    /// A stop was first.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The model gave no summary.
    #[error("the model gave no summary: {0}")]
    NoSummary(String),
    /// The log says so.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error("the session is not open: {0}")]
    NotOpen(String),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] NotAdmitted),
}

/// Prompt for the summary. It stands where the messages stood, so it must hold what the conversation still needs.
pub(crate) const ASK_SUMMARY: &str = "Summarise the conversation so far for yourself: it will be dropped, and you go on \
    with your summary alone. Keep what was asked and decided, what was done and found out, names of files and \
    identifiers, and what is open. Leave out greetings and what has become irrelevant. Answer with the summary only.";

/// Messages and turns to drop, from the first one on. `None` if there are not more turns than are kept.
pub(crate) fn cut(conversation: &Conversation, turns_kept: u32) -> Option<(u32, u32)> {
    let dropped = conversation.spans.len().checked_sub(turns_kept as usize)?;
    if dropped == 0 {
        return None;
    }
    let end = match conversation.spans.get(dropped) {
        Some(next) => next.start,
        None => conversation.messages.len() as u32,
    };
    Some((end, dropped as u32))
}

/// The tokens of a conversation, estimated.
pub(crate) fn tokens(conversation: &Conversation) -> u64 {
    let bytes = conversation.messages.iter().map(|message| message.bytes());
    Usage::estimate_tokens(bytes.sum())
}
