//! The row of the terminal that text was last written to and that is not ended.
//!
//! While a person types below an answer that is still coming, the answer's last row is written again each time that
//! more of it comes: no terminal says where its cursor was. So the text of that row has to be certain. Terminals
//! differ in the width of emoji and of marks: a row with such letters is ended here, before any terminal would.

use super::text::{EMOJI_COLUMNS_MAX, is_doubtful, is_emoji, widest};

/// Columns between tab stops.
const TAB: usize = 8;

/// The cursor's row, as far as it was written.
#[derive(Debug, Default)]
pub(super) struct OpenLine {
    row: String,
    column: usize,
    /// The columns of the terminal that it was written to; none: it was not followed.
    columns: usize,
    /// Terminals may disagree on its width.
    is_doubtful: bool,
    /// The terminal has broken the line before this row: another width makes other rows of it.
    is_wrapped: bool,
    /// Within a control sequence, which takes no column.
    in_sequence: bool,
}

impl OpenLine {
    /// Text on the row.
    pub(super) fn as_str(&self) -> &str {
        &self.row
    }

    /// True if it still is one row where the terminal has so many columns by now. One that has changed its width may have
    /// broken lines anew, and none says whether it does.
    pub(super) fn is_one_row_of(&self, columns: usize) -> bool {
        self.columns == columns || (self.columns > 0 && !self.is_wrapped && self.column <= columns)
    }

    /// The row was ended.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes text for a terminal of so many columns, and follows it.
    pub(super) fn write(&mut self, text: &str, columns: usize, to: &mut String) {
        // Only what comes after the last end of line can still be there.
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
        // More may be joined to an emoji, and comes later.
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

    /// The text of the row, and all that was written.
    fn written(pieces: &[&str], columns: usize) -> (String, String) {
        let mut line = OpenLine::default();
        let mut to = String::new();
        for piece in pieces {
            line.write(piece, columns, &mut to);
        }
        (line.as_str().to_owned(), to)
    }

    const FAMILY: &str = "👩\u{200d}👩\u{200d}👧\u{200d}👦";

    /// Eight columns in the one terminal, and two in the other.
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
