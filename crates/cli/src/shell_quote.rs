//! Words in commands that are printed to be pasted into a shell.

use std::borrow::Cow;

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}
