//! Breaks a line into rows that fit on every terminal.

use super::width::widest;

/// Breaks a line into rows of at most `columns` columns, at least one character each. An empty line is one row.
pub(crate) fn rows_of(line: &str, columns: usize) -> Vec<&str> {
    let mut rows = Vec::new();
    let (mut start, mut width) = (0, 0);
    for (at, c) in line.char_indices() {
        let more = widest(c);
        if width + more > columns && at > start {
            rows.push(&line[start..at]);
            (start, width) = (at, 0);
        }
        width += more;
    }
    rows.push(&line[start..]);
    rows
}

/// Replaces the tabs of a line by spaces.
pub fn without_tabs(line: &str) -> std::borrow::Cow<'_, str> {
    /// Columns between two tab stops. The distance is small because code is often wide.
    const TAB_COLUMNS: usize = 4;
    if !line.contains('\t') {
        return line.into();
    }
    let mut text = String::with_capacity(line.len() + 16);
    let mut column = 0;
    for c in line.chars() {
        if c == '\t' {
            let spaces = TAB_COLUMNS - column % TAB_COLUMNS;
            text.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        } else {
            text.push(c);
            column += widest(c);
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_and_lose_nothing() {
        assert_eq!(rows_of("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(rows_of("", 4), [""]);
        assert_eq!(rows_of("日本語", 4), ["日本", "語"]);
        assert_eq!(rows_of("日本", 1), ["日", "本"]);
        let emoji = "👩‍👩‍👧‍👦".repeat(3);
        assert_eq!(rows_of(&emoji, 9).concat(), emoji);
    }

    #[test]
    fn tabs_reach_their_stops() {
        assert_eq!(without_tabs("a\tb\t\tc"), "a   b       c");
        assert_eq!(without_tabs("日\tb"), "日  b");
    }
}
