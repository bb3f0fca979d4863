//! Characters that may not reach a terminal as they are.
//!
//! Control sequences hide a line, write to the clipboard or answer a question in the user's place. Characters that turn
//! the direction of text, or that are invisible, make a command look like another one. The joiners U+200C and U+200D
//! and the variation selectors stay: scripts and emoji need them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character could drive a terminal or deceive its reader.
pub(super) fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Invisible: the soft hyphen, fillers, separators, operators, the byte order mark.
            '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Marks, embeddings, overrides and isolates of direction, with the ends of line between them.
            | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // Tags, which spell a hidden text.
            | '\u{e0000}'..='\u{e007f}')
}

/// Escapes every harmful character of a text of several lines: newlines and tabs stay.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes every harmful character of a text that has to stay on one line.
pub(super) fn line(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

fn escape(text: &str, may_stay: impl Fn(char) -> bool) -> Cow<'_, str> {
    replace(
        text,
        |c| is_harmful(c) && !may_stay(c),
        |c, to| {
            to.extend(c.escape_default());
        },
    )
}

/// Writes the harmful characters of a JSON text as JSON escapes. Its values stay what they are: outside of strings JSON
/// has none of these characters but ends of line and tabs, which stay.
pub(super) fn json(text: &str) -> Cow<'_, str> {
    replace(
        text,
        |c| is_harmful(c) && !matches!(c, '\n' | '\t'),
        |c, to| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(to, "\\u{unit:04x}");
            }
        },
    )
}

fn replace(
    text: &str,
    is_wrong: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_wrong) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_wrong(c) {
            write(c, &mut safe);
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
    fn harmful_characters_are_escaped() {
        assert_eq!(
            text("a\u{1b}[2Jb\u{7}\r\nc\td\u{9b}31m"),
            "a\\u{1b}[2Jb\\u{7}\\r\nc\td\\u{9b}31m"
        );
        assert_eq!(line("a\nb\tc"), "a\\nb\\tc");
        assert_eq!(line("rm \u{202e}fdp.x"), "rm \\u{202e}fdp.x");
        assert!(matches!(
            text("größer 你好 👩\u{200d}🔬\n"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a": "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}\u{ad}é你" });
        for written in [value.to_string(), format!("{value:#}")] {
            let safe = json(&written);
            assert!(!safe.contains(|c| is_harmful(c) && c != '\n'), "{safe}");
            let read: serde_json::Value = serde_json::from_str(&safe).unwrap();
            assert_eq!(read, value);
        }
    }
}
