//! Escapes text from outside for a terminal, as [`terminal_text`] defines it.

use std::borrow::Cow;
use std::fmt::Write as _;

use allstop_core::terminal_text::{self, is_unsafe};

/// Escapes every unsafe character of a text of several lines. Newlines and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    terminal_text::escape(text, |c| is_unsafe(c) && !matches!(c, '\n' | '\t'))
}

/// Escapes every unsafe character of a text that has to stay on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    terminal_text::escape(text, is_unsafe)
}

/// Writes the unsafe characters of a JSON text as JSON escapes. The values stay the same: outside of strings, the only
/// unsafe characters of JSON are line ends and tabs, which are not escaped.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_wrong = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_wrong) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_wrong(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_line_stay_only_in_a_text_of_several_lines() {
        assert_eq!(
            text("a\u{1b}[2Jb\u{7}\r\nc\td\u{9b}31m"),
            "a\\u{1b}[2Jb\\u{7}\\r\nc\td\\u{9b}31m"
        );
        assert_eq!(line("a\nb\tc"), "a\\nb\\tc");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a": "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}\u{ad}é你" });
        for written in [value.to_string(), format!("{value:#}")] {
            let safe = json(&written);
            assert!(!safe.contains(|c| is_unsafe(c) && c != '\n'), "{safe}");
            let read: serde_json::Value = serde_json::from_str(&safe).unwrap();
            assert_eq!(read, value);
        }
    }
}
