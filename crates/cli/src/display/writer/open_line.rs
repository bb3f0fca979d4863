//! The row of the terminal that text was last written to and that is not ended.
//!
//! Where somebody types below an answer that is still coming, the answer's last row is written again each time that
//! more of it comes: no terminal says where its cursor was.

use unicode_width::UnicodeWidthChar as _;

/// Columns between tab stops.
const TAB: usize = 8;

/// The cursor's row, as far as it was written.
#[derive(Debug, Default)]
pub(super) struct OpenLine {
    row: String,
    column: usize,
    /// Within a control sequence, which takes no column.
    in_sequence: bool,
}

impl OpenLine {
    /// What stands on the row.
    pub(super) fn as_str(&self) -> &str {
        &self.row
    }

    /// The row was ended.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Follows what is written to a terminal of so many columns.
    pub(super) fn push(&mut self, text: &str, columns: usize) {
        // Only what comes after the last end of line can still be there.
        let rest = match text.rfind('\n') {
            Some(at) => {
                self.clear();
                text.get(at + 1..).unwrap_or_default()
            }
            None => text,
        };
        for c in rest.chars() {
            self.push_char(c, columns.max(2));
        }
    }

    fn push_char(&mut self, c: char, columns: usize) {
        if self.in_sequence || c == '\x1b' {
            self.in_sequence = c == '\x1b' || !c.is_ascii_alphabetic();
            self.row.push(c);
            return;
        }
        let width = match c {
            '\r' => {
                self.clear();
                return;
            }
            '\t' => (TAB - self.column % TAB).min(columns.saturating_sub(self.column + 1)),
            c => c.width().unwrap_or(0),
        };
        if self.column + width > columns {
            self.clear();
        }
        self.row.push(c);
        self.column += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pieces: &[&str], columns: usize) -> String {
        let mut line = OpenLine::default();
        for piece in pieces {
            line.push(piece, columns);
        }
        line.as_str().to_owned()
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
