//! Progress output of a sub-agent: one line for each answer and each tool call.

use allstop_core::message::Arguments;

use crate::event::AgentEvent;

/// Maximum number of characters per line, which is enough to recognise the topic. The whole answer follows at the end.
const LINE_CHARS_MAX: usize = 160;

/// Progress line of an event, if the event has one.
pub(super) fn line_of(event: &AgentEvent) -> Option<String> {
    match event {
        AgentEvent::StepAnswered { text, .. } if !text.trim().is_empty() => Some(one_line(text)),
        AgentEvent::ToolRequested {
            name, arguments, ..
        } => {
            let arguments = match arguments {
                Arguments::Json(arguments) => arguments.to_string(),
                Arguments::Malformed(text) => text.to_string(),
            };
            Some(one_line(&format!("→ {name} {arguments}")))
        }
        _ => None,
    }
}

/// Beginning of a text, in one line.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.join(" ");
    let mut line: String = words.chars().take(LINE_CHARS_MAX).collect();
    if line.len() < words.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_is_short_and_single() {
        assert_eq!(one_line(" first\n\n second\t"), "first second");
        let long = one_line(&"ä".repeat(LINE_CHARS_MAX + 1));
        assert_eq!(long.chars().count(), LINE_CHARS_MAX + 1);
        assert!(long.ends_with('…'));
    }
}
