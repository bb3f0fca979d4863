//! The line that a person types into, and its layout in the columns of a terminal.

use allstop_core::terminal_text::is_unsafe;
use unicode_width::UnicodeWidthStr as _;

use super::text::{Style, Styled, TextRole, widest};

/// Maximum number of rows of typed text that are shown. The shown rows are the rows around the cursor.
const ROWS_MAX: usize = 10;
/// A prefix takes at most the rows of the screen divided by this number, if there is a shorter prefix.
const PREFIX_SHARE: usize = 4;
/// Minimum columns for typed text after its prefix.
const TEXT_COLUMNS_MIN: usize = 10;

/// The line that a person types into, and the lines directly above it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLine {
    /// Lines directly above the typed text. Each line is cut to the width of the terminal, and lines without room are
    /// not shown.
    pub above: Vec<Styled>,
    /// The prefix of the typed text, which ends with a sign such as `>`.
    pub prefix: Styled,
    /// Replaces the prefix on a terminal on which the prefix takes too many rows.
    pub narrow: Option<NarrowPrefix>,
    /// Typed text of one or more lines.
    pub text: String,
    /// Position of the cursor in the text, in bytes.
    pub cursor: usize,
    /// Colours and symbols.
    pub style: Style,
    /// True if the terminal itself shows typed text. Then only the prefix is written, and nothing is redrawn.
    pub is_echoed: bool,
}

/// The prefix of an input line for a narrow terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NarrowPrefix {
    /// Words of the long prefix, above the typed text if they have room there.
    pub above: Styled,
    /// The short prefix.
    pub prefix: Styled,
}

/// The drawn input line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DrawnInput {
    pub(super) rows: Vec<String>,
    pub(super) cursor_row: usize,
    pub(super) cursor_column: usize,
}

impl InputLine {
    pub(super) fn draw(&self, columns: usize, screen_rows: usize) -> DrawnInput {
        // The last column stays free, because some terminals wrap the line as soon as the last column is written.
        let room = columns.saturating_sub(1).max(2);
        let (mut head, mut prefix) = self.head(room);
        let is_too_high = head.len() + 1 > screen_rows / PREFIX_SHARE;
        let narrow = self.narrow.as_ref().filter(|_| is_too_high);
        if let Some(narrow) = narrow {
            (head, prefix) = (Vec::new(), narrow.prefix.clone());
        }
        let indent = prefix.widest();
        let mut rows = vec![String::new()];
        let mut column = indent;
        let mut cursor = None;
        for (at, c) in self.text.char_indices() {
            let shown = shown(c);
            // The row must fit on every terminal. If terminals disagree on the width of the row, the cursor is at the
            // right position on most terminals.
            let width = widest(shown);
            let breaks = c != '\n' && column > indent && column + width > room;
            if breaks {
                rows.push(String::new());
                column = indent;
            }
            if at == self.cursor {
                cursor = Some(end_of(&rows));
            }
            if c == '\n' {
                rows.push(String::new());
                column = indent;
            } else if let Some(row) = rows.last_mut() {
                row.push(shown);
                column += width;
            }
        }
        let (mut cursor_row, typed_columns) = cursor.unwrap_or_else(|| end_of(&rows));
        let cursor_column = indent + typed_columns;

        let most = ROWS_MAX.min(screen_rows / 2).max(1);
        let first = (cursor_row + 1).saturating_sub(most);
        let rows: Vec<String> = rows
            .into_iter()
            .enumerate()
            .skip(first)
            .take(most)
            .map(|(at, row)| match at {
                0 => self.style.paint(TextRole::Strong, &prefix).into_string() + &row,
                _ => format!("{:indent$}{row}", ""),
            })
            .collect();
        cursor_row -= first;
        // A question leaves at least half of the screen to its text.
        let most = match &self.narrow {
            Some(_) => (screen_rows / 2).max(1),
            None => screen_rows.saturating_sub(1),
        };
        let above = most.saturating_sub(rows.len() + head.len());
        let words = narrow.map(|narrow| narrow.above.fit(room));
        let words = words.iter().flat_map(Styled::lines).collect::<Vec<_>>();
        let above = self.above.iter().chain(&words).take(above);
        let mark = self.style.pick("…", "...");
        let mut all: Vec<String> = above
            .map(|line| line.cut(room, mark).into_string())
            .collect();
        let head = head.into_iter();
        all.extend(head.map(|line| self.style.paint(TextRole::Strong, line).into_string()));
        cursor_row += all.len();
        all.extend(rows);
        DrawnInput {
            rows: all,
            cursor_row,
            cursor_column,
        }
    }

    /// Splits a long prefix into its words, which are shown in separate rows above the text, and its sign.
    fn head(&self, room: usize) -> (Vec<Styled>, Styled) {
        if self.prefix.widest() + TEXT_COLUMNS_MIN.min(room / 2) <= room {
            return (Vec::new(), self.prefix.clone());
        }
        // The sign at the end of the prefix stays with the text.
        let (words, sign) = match self.prefix.as_str().trim_end().rsplit_once(' ') {
            Some((words, sign)) if sign.chars().count() == 1 && room > TEXT_COLUMNS_MIN => {
                (Styled::text(words), Styled::text(&format!("{sign} ")))
            }
            _ => (self.prefix.clone(), Styled::default()),
        };
        let lines = words.wrap(room).into_iter();
        let cut = lines.map(|line| line.cut(room, self.style.pick("…", "...")));
        (cut.collect(), sign)
    }
}

/// Row and column of the end of the last row.
fn end_of(rows: &[String]) -> (usize, usize) {
    let last = rows.last().map_or(0, |row| row.width());
    (rows.len().saturating_sub(1), last)
}

/// Replaces a letter that is unsafe for a terminal, because pasted text can contain any letter.
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

    fn drawn(text: &str, cursor: usize, columns: usize, rows: usize) -> DrawnInput {
        let entry = InputLine {
            above: Vec::new(),
            prefix: "> ".into(),
            text: text.to_owned(),
            cursor,
            style: Style::default(),
            narrow: None,
            is_echoed: false,
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
    fn pasted_lines_are_shown_around_the_cursor() {
        assert_eq!(drawn("a\nb", 0, 80, 24).rows, ["> a", "  b"]);
        let long = drawn("1\n2\n3\n4\n5", 9, 80, 6);
        assert_eq!(long.rows, ["  3", "  4", "  5"]);
        assert_eq!((long.cursor_row, long.cursor_column), (2, 3));
    }

    /// If the terminal broke a row again, one row too many would stay on the screen after the rows are erased.
    #[test]
    fn no_row_is_wider_than_the_terminal() {
        let mut entry = InputLine {
            above: vec!["  waits: 👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦".into()],
            prefix: "  [y]es, once  [a]lways: this very command  [n]o > ".into(),
            text: "y".to_owned(),
            cursor: 1,
            style: Style::default(),
            narrow: None,
            is_echoed: false,
        };
        let drawn = entry.draw(24, 24);
        for row in &drawn.rows {
            assert!(Styled::text(row).widest() < 24, "{row}");
        }
        assert_eq!(drawn.rows.last().map(String::as_str), Some("> y"));
        entry.prefix = "> ".into();
        entry.text = "👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦".to_owned();
        entry.cursor = entry.text.len();
        assert_eq!(entry.draw(24, 24).rows.len(), 3);
    }

    #[test]
    fn pasted_text_cannot_control_the_terminal() {
        assert_eq!(drawn("a\x1b[2J\tb", 0, 80, 24).rows, ["> a?[2J b"]);
    }
}
