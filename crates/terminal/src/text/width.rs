//! Columns that text takes on terminals, which do not agree on all letters.

use unicode_width::UnicodeWidthChar as _;

/// Columns that the longest usual sequence of joined emoji takes where a terminal does not join them: a family of four.
pub(crate) const EMOJI_COLUMNS_MAX: usize = 8;

/// The most columns that any terminal gives a letter: what some join to the one before is counted in full.
pub(crate) fn widest(c: char) -> usize {
    match c {
        // Makes an emoji of two columns out of a letter of one.
        '\u{fe0f}' => 1,
        // Half a flag.
        '\u{1f1e6}'..='\u{1f1ff}' => 2,
        c => c.width().unwrap_or(0),
    }
}

/// True if terminals disagree on the columns that it takes.
pub(crate) fn is_doubtful(c: char) -> bool {
    is_emoji(c) || (!c.is_ascii() && c.width().unwrap_or(0) == 0)
}

/// True if more may be joined to it.
pub(crate) fn is_emoji(c: char) -> bool {
    matches!(c, '\u{1f000}'..='\u{1faff}')
        || (matches!(c, '\u{2300}'..='\u{2bff}') && c.width() == Some(2))
}
