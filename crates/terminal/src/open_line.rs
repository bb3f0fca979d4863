//! The last row of text on the terminal, if this row has no line end yet.
//!
//! While an answer arrives, a person can type into a line below it. The answer's last row is then written again with
//! each new piece, because no terminal reports the former cursor position in that row. The exact text of the row must
//! therefore be known. Terminals differ in the width of emoji and of combining marks, so a row with such letters is
//! ended early, before any terminal would wrap it.

use super::text::{EMOJI_COLUMNS_MAX, is_doubtful, is_emoji, widest};

/// Columns between tab stops.
const TAB: usize = 8;

/// The written part of the cursor's row.
#[derive(Debug, Default)]
pub(super) struct OpenLine {
    row: String,
    column: usize,
    /// The width of the terminal at the last write; 0 if the row is not tracked.
    columns: usize,
    /// True if terminals may disagree on the width of the row.
    is_doubtful: bool,
    /// True if this row continues a line that the terminal has wrapped. If the width changes, the text of this row
    /// changes too.
    is_wrapped: bool,
    /// True within a control sequence, which takes no column.
    in_sequence: bool,
}

impl OpenLine {
    /// Text on the row.
    pub(super) fn as_str(&self) -> &str {
        &self.row
    }

    /// True if the text still takes one row on a terminal that now has this width. A terminal may have reflowed its
    /// lines after a change of width, and no terminal reports a reflow.
    pub(super) fn is_one_row_of(&self, columns: usize) -> bool {
        self.columns == columns || (self.columns > 0 && !self.is_wrapped && self.column <= columns)
    }

    /// Forgets the row, because it has ended.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes text for a terminal of this width, and tracks the last row.
    pub(super) fn write(&mut self, text: &str, columns: usize, to: &mut String) {
        // Only text after the last line end can still be on the row.
        let rest = match text.rfind('\n') {
            Some(at) => {
                self.clear();
                let (ended, rest) = text.split_at(at + 1);
                to.push_str(ended);
                rest
            }
            None => text,
        };
        for c in rest.chars() {
            self.write_char(c, columns.max(2), to);
        }
        self.columns = columns;
    }

    fn write_char(&mut self, c: char, columns: usize, to: &mut String) {
        if self.in_sequence || c == '\x1b' {
            self.in_sequence = c == '\x1b' || !c.is_ascii_alphabetic();
            self.row.push(c);
            to.push(c);
            return;
        }
        let width = match c {
            '\r' => {
                to.push(c);
                self.clear();
                return;
            }
            '\t' => (TAB - self.column % TAB).min(columns.saturating_sub(self.column + 1)),
            c => widest(c),
        };
        let is_doubtful = is_doubtful(c);
        // A later piece may join further letters to an emoji.
        let begins_emoji = is_emoji(c) && !self.row.ends_with('\u{200d}');
        let room = if begins_emoji {
            EMOJI_COLUMNS_MAX.min(columns)
        } else {
            width
        };
        if self.column > 0 && self.column + room > columns {
            let ends_here = self.is_doubtful || is_doubtful;
            self.clear();
            self.is_wrapped = !ends_here;
            if ends_here {
                to.push('\n');
            }
        }
        self.row.push(c);
        to.push(c);
        self.column += width;
        self.is_doubtful |= is_doubtful;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pieces: &[&str], columns: usize) -> String {
        written(pieces, columns).0
    }

    /// The text of the row, and all written output.
    fn written(pieces: &[&str], columns: usize) -> (String, String) {
        let mut line = OpenLine::default();
        let mut to = String::new();
        for piece in pieces {
            line.write(piece, columns, &mut to);
        }
        (line.as_str().to_owned(), to)
    }

    const FAMILY: &str = "👩\u{200d}👩\u{200d}👧\u{200d}👦";

    /// The emoji of a family takes eight columns on one terminal, and two on another.
    #[test]
    fn a_row_with_emoji_is_ended_before_any_terminal_would() {
        let (row, to) = written(&["12345678", FAMILY, FAMILY, " more"], 20);
        assert_eq!(row, format!("{FAMILY} more"));
        assert_eq!(to, format!("12345678{FAMILY}\n{FAMILY} more"));
        let (row, to) = written(&["1234567890", "👩", "\u{200d}👩\u{200d}", "👧x"], 16);
        assert_eq!(
            row, "👩\u{200d}👩\u{200d}👧x",
            "in pieces it stays together"
        );
        assert_eq!(to, format!("1234567890\n{row}"));
        assert_eq!(
            row_of_columns("❤\u{fe0f}abc", 4),
            ("c".into(), "❤\u{fe0f}ab\nc".into())
        );
    }

    fn row_of_columns(text: &str, columns: usize) -> (String, String) {
        written(&[text], columns)
    }

    #[test]
    fn text_of_known_width_is_left_to_the_terminal() {
        for text in ["one two three four five", "你好世界你好世界", "\tab\tcd"] {
            assert_eq!(written(&[text], 9).1, text);
        }
    }

    #[test]
    fn it_is_what_stands_on_the_last_row() {
        assert_eq!(row(&["one\ntwo", " three"], 80), "two three");
        assert_eq!(row(&["abcdefgh"], 5), "fgh");
        assert_eq!(row(&["abcde"], 5), "abcde", "full, and not yet wrapped");
        assert_eq!(row(&["abcd你"], 5), "你", "it has no room on the row");
        assert_eq!(row(&["\x1b[1mabc\x1b[0md"], 4), "\x1b[1mabc\x1b[0md");
        assert_eq!(row(&["done\n"], 80), "");
    }
}
