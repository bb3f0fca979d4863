//! The line that a person types into: how it looks in so many columns.

use allstop_core::terminal_text::is_unsafe;
use unicode_width::UnicodeWidthChar as _;

use super::super::style::{Role, Style};
use super::super::styled::Styled;

/// Rows of typed text that are shown at once; of more, those around the cursor.
const ROWS_MAX: usize = 10;

/// The line that a person types into, and what stands right above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Lines above it that belong to it, each cut to the width: messages that wait.
    pub(crate) above: Vec<Styled>,
    /// The sign in front of it.
    pub(crate) prefix: Styled,
    /// What was typed; may have several lines.
    pub(crate) text: String,
    /// Where the cursor is in that, in bytes.
    pub(crate) cursor: usize,
    /// How to draw it.
    pub(crate) style: Style,
}

/// It, drawn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) rows: Vec<String>,
    pub(super) cursor_row: usize,
    pub(super) cursor_column: usize,
}

impl Entry {
    pub(super) fn draw(&self, columns: usize, screen_rows: usize) -> Drawn {
        // The last column stays free: some terminals wrap as soon as it is written.
        let room = columns.saturating_sub(1).max(2);
        let indent = self.prefix.width().min(room - 1);
        let mut rows = vec![String::new()];
        let mut column = indent;
        let mut cursor = None;
        for (at, c) in self.text.char_indices() {
            let shown = shown(c);
            let width = shown.width().unwrap_or(0);
            let breaks = c != '\n' && column + width > room;
            if breaks {
                rows.push(String::new());
                column = indent;
            }
            if at == self.cursor {
                cursor = Some((rows.len() - 1, column));
            }
            if c == '\n' {
                rows.push(String::new());
                column = indent;
            } else if let Some(row) = rows.last_mut() {
                row.push(shown);
                column += width;
            }
        }
        let (mut cursor_row, cursor_column) = cursor.unwrap_or((rows.len() - 1, column));

        let most = ROWS_MAX.min(screen_rows / 2).max(1);
        let first = (cursor_row + 1).saturating_sub(most);
        let rows: Vec<String> = rows
            .into_iter()
            .enumerate()
            .skip(first)
            .take(most)
            .map(|(at, row)| match at {
                0 => self.style.paint(Role::Strong, &self.prefix).into_string() + &row,
                _ => format!("{:indent$}{row}", ""),
            })
            .collect();
        cursor_row -= first;
        let mut all: Vec<String> = self
            .above
            .iter()
            .map(|line| self.above(line, room).into_string())
            .collect();
        cursor_row += all.len();
        all.extend(rows);
        Drawn {
            rows: all,
            cursor_row,
            cursor_column,
        }
    }

    fn above(&self, line: &Styled, room: usize) -> Styled {
        let line = line.cut(room, self.style.pick("…", "..."));
        self.style.paint(Role::Dim, line)
    }
}

/// A letter as it may stand on a terminal: what was pasted can hold anything.
fn shown(c: char) -> char {
    match c {
        '\t' => ' ',
        c if is_unsafe(c) => '?',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, cursor: usize, columns: usize, rows: usize) -> Drawn {
        let entry = Entry {
            above: Vec::new(),
            prefix: "> ".into(),
            text: text.to_owned(),
            cursor,
            style: Style::default(),
        };
        entry.draw(columns, rows)
    }

    #[test]
    fn long_text_wraps_and_the_cursor_is_where_it_belongs() {
        let all = drawn("abcdefgh", 8, 8, 24);
        assert_eq!(all.rows, ["> abcde", "  fgh"]);
        assert_eq!((all.cursor_row, all.cursor_column), (1, 5));
        let middle = drawn("abcdefgh", 2, 8, 24);
        assert_eq!((middle.cursor_row, middle.cursor_column), (0, 4));
        assert_eq!(drawn("", 0, 80, 24).rows, ["> "]);
        let broken = drawn("abcdefgh", 5, 8, 24);
        assert_eq!((broken.cursor_row, broken.cursor_column), (1, 2));
    }

    #[test]
    fn pasted_lines_stand_below_each_other_and_only_those_around_the_cursor() {
        assert_eq!(drawn("a\nb", 0, 80, 24).rows, ["> a", "  b"]);
        let long = drawn("1\n2\n3\n4\n5", 9, 80, 6);
        assert_eq!(long.rows, ["  3", "  4", "  5"]);
        assert_eq!((long.cursor_row, long.cursor_column), (2, 3));
    }

    #[test]
    fn what_is_pasted_cannot_drive_the_terminal() {
        assert_eq!(drawn("a\x1b[2J\tb", 0, 80, 24).rows, ["> a?[2J b"]);
    }
}
