//! Breaks a line into rows: between words if possible, and never within a grapheme cluster.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation as _};

use super::super::text::widest;
use super::Span;

/// Places at which a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowBreak {
    /// Between words, as Unicode defines them; within a word only if the word is longer than a row.
    Words,
    /// Between any two letters. For code, whose blanks have a meaning.
    Anywhere,
}

/// Treatment of a piece of text that is wider than a row and has no place for a break: a long word, or a line of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LongPiece {
    /// Broken at the end of the row.
    Split,
    /// Written as a whole. The terminal breaks it, so that a copy of it contains no line end.
    Whole,
}

/// Maximum number of columns that a text takes on any terminal.
pub(super) fn widest_of(text: &str) -> usize {
    text.chars().map(widest).sum()
}

/// Breaks a line into at least one row. Each row is at most `room` columns wide, unless a single grapheme cluster is
/// wider, or a long piece stays whole.
pub(super) fn break_rows(
    line: &[Span],
    room: usize,
    breaks: RowBreak,
    long: LongPiece,
) -> Vec<Vec<Span>> {
    let text: String = line.iter().map(|span| span.text.as_str()).collect();
    let mut rows = Vec::new();
    for (start, end) in row_ranges(&text, room, breaks, long) {
        rows.push(slice(line, start, end));
    }
    rows
}

fn row_ranges(text: &str, room: usize, breaks: RowBreak, long: LongPiece) -> Vec<(usize, usize)> {
    let is_whole = breaks == RowBreak::Anywhere && long == LongPiece::Whole;
    if is_whole || widest_of(text) <= room {
        return vec![(0, text.len())];
    }
    let mut may_break = match breaks {
        RowBreak::Words => Some(unicode_linebreak::linebreaks(text).peekable()),
        RowBreak::Anywhere => None,
    };
    let mut rows = Vec::new();
    let (mut start, mut width) = (0, 0);
    // The last place at which the current row may be broken, and the width of the row before this place.
    let mut last: Option<(usize, usize)> = None;
    for (at, cluster) in text.grapheme_indices(true) {
        if let Some(places) = &mut may_break {
            while places.next_if(|(place, _)| *place < at).is_some() {}
            let is_word = places.peek().is_some_and(|(place, _)| *place == at);
            if at > start && is_word && !is_within_address(&text[..at]) {
                last = Some((at, width));
            }
        }
        let more = widest_of(cluster);
        // Blanks between words may extend past the end of the row, because they are removed there.
        let hangs = breaks == RowBreak::Words && cluster == " ";
        if width + more > room && at > start && !hangs {
            let end = match long {
                LongPiece::Split => Some(last.take().unwrap_or((at, width))),
                LongPiece::Whole => last.take(),
            };
            if let Some((end, used)) = end {
                rows.push((start, end));
                (start, width) = (end, width - used);
            }
        }
        width += more;
    }
    rows.push((start, text.len()));
    rows
}

/// True if a text ends within an address of the web. An address stays whole.
fn is_within_address(text: &str) -> bool {
    let word = text.rsplit(' ').next().unwrap_or_default();
    word.ends_with('/') || word.contains("://")
}

fn slice(line: &[Span], start: usize, end: usize) -> Vec<Span> {
    let mut begin = 0;
    let mut row = Vec::new();
    for span in line {
        let (from, to) = (start.max(begin), end.min(begin + span.text.len()));
        if from < to {
            row.push(Span {
                text: span.text[from - begin..to - begin].to_owned(),
                style: span.style,
                link: span.link.clone(),
            });
        }
        begin += span.text.len();
    }
    row
}

/// The last place at which a text can be cut before the following text is known. This is the place after the last
/// blank. A text without a blank is cut before its last cluster, or at its end if the text is a single cluster.
pub(crate) fn last_boundary(text: &str) -> usize {
    if let Some(blank) = text.rfind(' ').filter(|at| at + 1 < text.len()) {
        return blank + 1;
    }
    let mut cursor = GraphemeCursor::new(text.len(), text.len(), true);
    match cursor.prev_boundary(text, 0) {
        Ok(Some(at)) if at > 0 => at,
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: &str = "👩\u{200d}👩\u{200d}👧\u{200d}👦";

    fn rows(text: &str, room: usize, breaks: RowBreak) -> Vec<String> {
        let line = [Span::plain(text)];
        let rows = break_rows(&line, room, breaks, LongPiece::Split);
        let text = |row: Vec<Span>| row.iter().map(|span| span.text.as_str()).collect();
        rows.into_iter().map(text).collect()
    }

    #[test]
    fn words_stay_whole() {
        assert_eq!(
            rows("one two three", 8, RowBreak::Words),
            ["one two ", "three"]
        );
        assert_eq!(rows("one two  ", 7, RowBreak::Words), ["one two  "]);
        assert_eq!(
            rows("a abcdefgh i", 4, RowBreak::Words),
            ["a ", "abcd", "efgh ", "i"]
        );
        assert_eq!(
            rows("你好，世界", 4, RowBreak::Words),
            ["你", "好，", "世界"]
        );
        assert_eq!(rows("", 4, RowBreak::Words), [""]);
    }

    #[test]
    fn a_long_word_and_a_line_of_code_can_stay_whole() {
        let whole = |text: &str, breaks| {
            let rows = break_rows(&[Span::plain(text)], 8, breaks, LongPiece::Whole);
            let text = |row: Vec<Span>| row.iter().map(|span| span.text.as_str()).collect();
            rows.into_iter().map(text).collect::<Vec<String>>()
        };
        assert_eq!(
            whole("see https://a.example/b?c=d now it", RowBreak::Words),
            ["see ", "https://a.example/b?c=d ", "now it"]
        );
        assert_eq!(
            whole("ab  cd  ef  gh", RowBreak::Anywhere),
            ["ab  cd  ef  gh"]
        );
    }

    #[test]
    fn code_is_broken_at_the_end_of_the_row() {
        assert_eq!(
            rows("ab  cd  ef", 4, RowBreak::Anywhere),
            ["ab  ", "cd  ", "ef"]
        );
    }

    #[test]
    fn clusters_are_never_split() {
        let flags = "🇩🇪🇫🇷🇯🇵";
        assert_eq!(rows(flags, 4, RowBreak::Anywhere), ["🇩🇪", "🇫🇷", "🇯🇵"]);
        let families = format!("{FAMILY}{FAMILY}");
        assert_eq!(rows(&families, 9, RowBreak::Anywhere), [FAMILY, FAMILY]);
        assert_eq!(
            rows("e\u{301}e\u{301}e\u{301}", 2, RowBreak::Words),
            ["e\u{301}e\u{301}", "e\u{301}"]
        );
        assert_eq!(
            rows(&families, 3, RowBreak::Words),
            [FAMILY, FAMILY],
            "wider than the row"
        );
    }

    #[test]
    fn a_text_without_an_end_is_cut_between_clusters() {
        assert_eq!(last_boundary("one two"), 4);
        assert_eq!(last_boundary("abc"), 2);
        assert_eq!(last_boundary(&format!("a{FAMILY}")), 1);
        assert_eq!(last_boundary(FAMILY), FAMILY.len());
    }
}
