//! Text of a permission question. A person approves this text, so no part of the text may be invisible or change how
//! other parts are displayed.

use allstop_core::terminal_text::{escape, is_unsafe_in_question};
use serde_json::Value;

/// Maximum length of the one-line text of a question, in characters: one screen. Displays with several lines show the
/// whole text.
const QUESTION_CHARS_MAX: usize = 2_000;

/// Returns one line of limited length, without characters that are invisible or change the display of other characters.
pub(super) fn escaped_line(text: &str) -> String {
    let cut = text.char_indices().nth(QUESTION_CHARS_MAX);
    let (kept, rest) = text.split_at(cut.map_or(text.len(), |(at, _)| at));
    let line = escape(kept, is_unsafe_in_question).into_owned();
    match rest.chars().count() {
        0 => line,
        rest => format!("{line} … and {rest} more characters"),
    }
}

/// Returns the arguments that follow the subject of a question on the same line.
pub(super) fn compact_arguments(arguments: &Value) -> String {
    let names = arguments.as_object();
    let is_path_only = names.is_some_and(|map| map.keys().all(|name| name == "path"));
    if is_path_only {
        return String::new();
    }
    format!(": {}", escaped_line(&arguments.to_string()))
}

/// Returns all arguments in lines: the command, or each argument with its name.
pub(super) fn argument_lines(arguments: &Value, is_command: bool) -> Vec<String> {
    let mut lines = Vec::new();
    match arguments {
        Value::Object(map) => {
            for (name, value) in map {
                match value {
                    Value::String(command) if is_command && name == "command" => {
                        lines.extend(escaped_lines(command));
                    }
                    // The subject of the question already states that the command runs in the background.
                    Value::Bool(_) if is_command && name == "background" => {}
                    Value::String(text) if text.contains('\n') => {
                        lines.push(format!("{}:", escaped_line(name)));
                        lines.extend(escaped_lines(text).map(|line| format!("  {line}")));
                    }
                    Value::String(text) => lines.push(named(name, text)),
                    other => lines.push(named(name, &other.to_string())),
                }
            }
        }
        other => lines.extend(escaped_lines(&other.to_string())),
    }
    lines
}

fn named(name: &str, text: &str) -> String {
    let text = escape(text, is_unsafe_in_question);
    format!("{}: {text}", escaped_line(name))
}

fn escaped_lines(text: &str) -> impl Iterator<Item = String> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n')
        .map(|line| escape(line, is_unsafe_in_question).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_have_their_lines_and_other_arguments_their_names() {
        let command =
            json!({ "background": true, "command": "a \\\n\tb\u{202e}\n", "timeout_s": 3 });
        assert_eq!(
            argument_lines(&command, true),
            ["a \\", "\\tb\\u{202e}", "timeout_s: 3"]
        );
        let other = json!({ "deep": { "x": [1] }, "n\nm": "one", "text": "a\n\nb" });
        assert_eq!(
            argument_lines(&other, false),
            [
                "deep: {\"x\":[1]}",
                "n\\nm: one",
                "text:",
                "  a",
                "  ",
                "  b"
            ]
        );
    }

    #[test]
    fn one_line_is_bounded_and_lines_are_whole() {
        let long = "x".repeat(10_000);
        let command = json!({ "command": &long });
        assert_eq!(argument_lines(&command, true), std::slice::from_ref(&long));
        assert!(escaped_line(&long).ends_with(" … and 8000 more characters"));
    }
}
