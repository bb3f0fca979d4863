//! Compaction: replaces the oldest messages of a conversation by a summary, between two turns.

use std::sync::Arc;

use allstop_agent::TurnError;
use allstop_core::message::{Arguments, Message};
use allstop_core::turn::Conversation;
use allstop_core::{Cause, Usage};
use allstop_log::SessionError;

use crate::queue::MessageRefused;

/// Limits of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// The conversation has no turns, or at most as many turns as an automatic compaction keeps.
    #[error("the conversation is too short: only {}", turn_count(*.0))]
    TooShort(usize),
    /// A stop came before the compaction.
    #[error("stopped: {0}")]
    Stopped(Cause),
    /// The provider refused the request for a summary, also with cut messages.
    #[error("the provider refused the request for a summary: {0}")]
    Refused(String),
    /// The model returned no summary.
    #[error("the model returned no summary: {0}")]
    NoSummary(String),
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

fn turn_count(turns: usize) -> String {
    format!("{turns} turn{}", if turns == 1 { "" } else { "s" })
}

/// Prompt for the summary. The summary replaces the messages, so it must contain everything that the conversation still
/// needs.
pub(crate) const ASK_SUMMARY: &str = "Summarise the conversation so far for yourself: it will be dropped, and you go on \
    with your summary alone. Keep what was asked and decided, what was done and found out, names of files and \
    identifiers, and what is open. Leave out greetings and what has become irrelevant. Answer with the summary only.";

/// Returns the number of messages and turns to drop from the start. `None` if the conversation has at most `turns_kept`
/// turns.
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

/// Number of newest turns that a requested compaction keeps: `turns_kept`, or fewer in a shorter conversation, because a
/// single long turn can fill the context of the model.
pub(crate) fn turns_kept_on_request(conversation: &Conversation, turns_kept: u32) -> u32 {
    let turns = u32::try_from(conversation.spans.len()).unwrap_or(u32::MAX);
    turns_kept.min(turns.saturating_sub(1))
}

/// Maximum bytes of each text in a request for a summary: first no limit, then less and less while the provider refuses
/// the request, for example because it is longer than the context of the model.
pub(crate) const TEXT_BYTES_MAX: [usize; 3] = [usize::MAX, 4 * 1024, 512];

/// The messages, each text and the arguments of each call cut to this many bytes.
pub(crate) fn shortened(messages: &[Arc<Message>], bytes_max: usize) -> Vec<Arc<Message>> {
    let cut = |text: &Arc<str>| -> Arc<str> {
        if text.len() <= bytes_max {
            return Arc::clone(text);
        }
        let head = text.floor_char_boundary(bytes_max / 2);
        let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
        format!(
            "{}\n[cut for this summary]\n{}",
            &text[..head],
            &text[tail..]
        )
        .into()
    };
    let shorten = |message: &Arc<Message>| {
        if message.bytes() <= bytes_max {
            return Arc::clone(message);
        }
        let mut short = Message::clone(message);
        match &mut short {
            Message::User { text }
            | Message::Note { text }
            | Message::Summary { text }
            | Message::StopMarker { text } => *text = cut(text),
            Message::Tool(result) => result.content = cut(&result.content),
            Message::Assistant { text, tool_calls } => {
                *text = cut(text);
                for call in tool_calls.iter_mut() {
                    if call.arguments.bytes() > bytes_max {
                        call.arguments = Arguments::left_out();
                    }
                }
            }
        }
        Arc::new(short)
    };
    messages.iter().map(shorten).collect()
}

/// Estimated tokens of a conversation.
pub(crate) fn tokens(conversation: &Conversation) -> u64 {
    let bytes = conversation.messages.iter().map(|message| message.bytes());
    Usage::estimate_tokens(bytes.sum())
}
