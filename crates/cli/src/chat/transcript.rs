//! The end of a conversation as text, for a resumed chat and `/history`.

use std::fmt::Write as _;

use allstop_core::describe_call;
use allstop_core::message::Message;
use allstop_core::turn::Conversation;

/// Number of last messages that a resumed session shows: enough to recall the topic.
pub(super) const RESUMED_MESSAGES: usize = 4;
/// Maximum letters of each message that a resumed session shows.
pub(super) const RESUMED_LETTERS: usize = 400;

/// Formats the last messages of a conversation, each cut to this many letters. Empty if the conversation has no
/// messages.
pub(super) fn render(conversation: &Conversation, messages: usize, letters: usize) -> String {
    let skipped = conversation.messages.len().saturating_sub(messages);
    let mut lines = String::new();
    for message in conversation.messages.iter().skip(skipped) {
        // Writing to a string cannot fail.
        match &**message {
            Message::User { text } => {
                let _ = writeln!(lines, "› {}", cut(text, letters));
            }
            Message::Assistant { text, tool_calls } => {
                if !text.is_empty() {
                    let _ = writeln!(lines, "{}", cut(text, letters));
                }
                for call in tool_calls {
                    let label = describe_call(&call.name, &call.arguments);
                    let _ = writeln!(lines, "  [{}]", cut(&label, letters).replace('\n', " "));
                }
            }
            Message::Summary { text } => {
                let _ = writeln!(lines, "[summary of earlier turns] {}", cut(text, letters));
            }
            Message::StopMarker { .. } => lines.push_str("  [stopped here]\n"),
            Message::Note { text } => {
                let _ = writeln!(lines, "  [note: {}]", cut(text, letters).replace('\n', " "));
            }
            Message::Tool(_) => {}
        }
    }
    lines
}

fn cut(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
