//! Quoting of words in commands that users copy into a shell.

use std::borrow::Cow;

/// Quotes a word for a shell, if necessary.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}
