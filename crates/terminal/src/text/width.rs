//! Columns of text on terminals, which disagree on some letters.

use unicode_width::UnicodeWidthChar as _;

/// Columns of the longest usual sequence of joined emoji, a family of four, on a terminal that does not join them.
pub(crate) const EMOJI_COLUMNS_MAX: usize = 8;

/// Maximum columns of a letter on any terminal. A letter that some terminals join to the previous one counts in full.
pub(crate) fn widest(c: char) -> usize {
    match c {
        // This letter turns the letter before it from one column into an emoji of two columns.
        '\u{fe0f}' => 1,
        // One half of a flag.
        '\u{1f1e6}'..='\u{1f1ff}' => 2,
        c => c.width().unwrap_or(0),
    }
}

/// True if terminals disagree on the columns of the letter.
pub(crate) fn is_doubtful(c: char) -> bool {
    is_emoji(c) || (!c.is_ascii() && c.width().unwrap_or(0) == 0)
}

/// True if further letters may be joined to this one.
pub(crate) fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1f000}'..='\u{1faff}')
        || (matches!(c, '\u{2300}'..='\u{2bff}') && c.width() == Some(2))
}
