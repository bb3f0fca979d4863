//! Text that others wrote, made harmless before it reaches a terminal.
//!
//! A model, a file or a tool can print control sequences that hide a line, write to the clipboard or answer a question
//! in the user's place. Letters that turn the direction of the text round are escaped too: they make a command look
//! like another one.

use std::borrow::Cow;

/// A text of several lines: newlines and tabs stay.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// A text that has to stay on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

fn escape(text: &str, may_stay: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| (c.is_control() && !may_stay(c)) || turns_direction(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn turns_direction(c: char) -> bool {
    matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            super::text("a\u{1b}[2Jb\u{7}\r\nc\td\u{9b}31m"),
            "a\\u{1b}[2Jb\\u{7}\\r\nc\td\\u{9b}31m"
        );
        assert_eq!(super::line("a\nb\tc"), "a\\nb\\tc");
        assert_eq!(super::line("rm \u{202e}fdp.x"), "rm \\u{202e}fdp.x");
        assert!(matches!(
            super::text("größer 你好\n"),
            std::borrow::Cow::Borrowed(_)
        ));
    }
}
