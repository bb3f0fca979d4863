//! Definition of the characters that must not reach a terminal unescaped.
//!
//! Control sequences can hide a line, write to the clipboard or answer a question in place of the user. Invisible
//! characters and direction marks can disguise a command. Code that prints text for people escapes all of these
//! characters. Code that sends text to programs keeps them.
//!
//! There are two sets of characters. [`is_unsafe`] is for text that people only read. This set does not contain the
//! joiners and variation selectors of scripts and emoji, so `👩‍🚀` stays one letter. These characters cannot control a
//! terminal, and people make no decision from such a text. [`is_unsafe_in_question`] is for text that people approve.
//! This set contains every invisible character, and every blank except the space.

use std::borrow::Cow;

/// The mark in front of each row that Allstop itself prints beside text from outside.
pub const OWN_ROW_MARK: char = '▎';

/// True if a character could control a terminal or deceive its reader.
pub fn is_unsafe(c: char) -> bool {
    // Fast path for most text.
    if matches!(c, ' '..='~') {
        return false;
    }
    // C0, DEL and C1.
    c.is_control()
        // Line and paragraph separators.
        || matches!(c, '\u{2028}' | '\u{2029}')
        || c == OWN_ROW_MARK
        || (is_invisible(c) && !is_joiner(c))
}

/// Like [`is_unsafe`], but for text that a person approves. Joiners, variation selectors and unusual blanks are unsafe
/// too.
pub fn is_unsafe_in_question(c: char) -> bool {
    is_unsafe(c) || is_joiner(c) || c == '\u{2800}' || (c.is_whitespace() && c != ' ')
}

/// Writes each character that `is_wrong` as an escape such as `\u{202e}`.
pub fn escape(text: &str, is_wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_wrong) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_wrong(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// True if a character joins or changes the characters next to it: ZWNJ, ZWJ, and the selectors of text and emoji
/// style.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
}

/// True if a character has no glyph: Unicode's default ignorables and the interlinear annotations. These ranges hold
/// all direction marks, embeddings, overrides and isolates, and all tags.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_invisible_characters_are_unsafe() {
        let classes = [
            '\0'..='\u{1f}',
            '\u{7f}'..='\u{9f}',
            '\u{ad}'..='\u{ad}',
            '\u{61c}'..='\u{61c}',
            '\u{200e}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2060}'..='\u{206f}',
            '\u{fe00}'..='\u{fe0d}',
            '\u{feff}'..='\u{feff}',
            '\u{e0000}'..='\u{e007f}',
            '\u{e0100}'..='\u{e01ef}',
        ];
        for c in classes.into_iter().flatten().chain([OWN_ROW_MARK]) {
            assert!(is_unsafe(c) && is_unsafe_in_question(c), "{c:?}");
        }
    }

    #[test]
    fn scripts_and_emoji_stay_unescaped() {
        let text = "größer 你好 می\u{200c}خواهم हिन्दी 👩\u{200d}🔬 ❤\u{fe0f} ⠋ a\u{a0}b 한글";
        assert!(matches!(escape(text, is_unsafe), Cow::Borrowed(_)));
    }

    #[test]
    fn questions_escape_invisible_characters() {
        let asked = "rm\u{a0}x\u{200d}\u{fe0f}\u{3000}y\u{2800}z é你";
        assert_eq!(
            escape(asked, is_unsafe_in_question),
            "rm\\u{a0}x\\u{200d}\\u{fe0f}\\u{3000}y\\u{2800}z é你"
        );
    }
}
