//! The oldest turns of a conversation, and the summary that replaces their messages: in the requests of a turn, or between
//! two turns in the conversation.

use std::sync::Arc;

use allstop_core::Usage;
use allstop_core::message::Message;
use allstop_core::turn::Conversation;

/// Summary of the oldest turns of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnsSummary {
    /// Number of messages that the summary replaces, counted from the oldest message.
    pub messages: u32,
    /// Number of turns that the summary replaces.
    pub turns: u32,
    /// The summary.
    pub text: Arc<str>,
}

/// The text without its middle part if it is longer than this. `note` describes the number of bytes left out.
pub(crate) fn cut_middle(
    text: &Arc<str>,
    bytes_max: usize,
    note: impl FnOnce(usize) -> String,
) -> Arc<str> {
    if text.len() <= bytes_max {
        return Arc::clone(text);
    }
    let head = text.floor_char_boundary(bytes_max / 2);
    let tail = text.ceil_char_boundary(text.len() - bytes_max / 2);
    let note = note(tail - head);
    format!("{}{note}{}", &text[..head], &text[tail..]).into()
}

/// Returns the number of messages and turns to drop from the start. `None` if the conversation has at most `turns_kept`
/// turns.
pub fn oldest_turns(conversation: &Conversation, turns_kept: u32) -> Option<(u32, u32)> {
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

/// Number of newest turns that are together at most this long: `turns_max`, or fewer.
pub fn newest_turns_within(conversation: &Conversation, turns_max: u32, tokens_max: u64) -> u32 {
    let is_short = |turns: &u32| {
        let start = match oldest_turns(conversation, *turns) {
            Some((messages, _)) => messages as usize,
            None => 0,
        };
        tokens_of(conversation.messages.get(start..).unwrap_or_default()) <= tokens_max
    };
    (0..=turns_max).rev().find(is_short).unwrap_or(0)
}

/// Estimated tokens of these messages.
pub fn tokens_of(messages: &[Arc<Message>]) -> u64 {
    Usage::estimate_tokens(messages.iter().map(|message| message.bytes()).sum())
}
