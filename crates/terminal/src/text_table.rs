//! Lines with aligned columns.

use super::text::{Styled, styled};

/// Minimum columns of the last column. In a narrower column, each row would hold about one word.
const LAST_COLUMNS_MIN: usize = 16;

/// Lines with aligned columns. The last column is not padded.
#[derive(Debug, Default)]
pub struct TextTable {
    rows: Vec<Vec<Styled>>,
}

impl TextTable {
    /// Adds a line.
    pub fn row<const N: usize>(&mut self, cells: [Styled; N]) {
        self.rows.push(cells.into());
    }

    /// Renders the lines, each with its line end.
    pub fn render(&self) -> Styled {
        self.render_in(usize::MAX)
    }

    /// Like [`render`](Self::render), but breaks the last column between words to fit into `limit` columns. If the last
    /// column has no room next to the other columns, its text is placed below the other columns.
    pub fn render_in(&self, limit: usize) -> Styled {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                cells.map(Styled::width).max().unwrap_or_default()
            })
            .collect();
        let mut text = Styled::default();
        for row in &self.rows {
            let mut line = Styled::default();
            let last = row.len().saturating_sub(1);
            for (cell, width) in row.iter().zip(&widths).take(last) {
                line.push(&cell.pad(*width));
                line.push("  ");
            }
            let Some(cell) = row.last() else { continue };
            let indent = line.width();
            let room = limit.saturating_sub(indent);
            if cell.width() <= room {
                line.push(cell);
                text.push_line(&line.trim_end());
                continue;
            }
            let (room, indent) = if room < LAST_COLUMNS_MIN {
                if !line.clone().trim_end().is_empty() {
                    text.push_line(&line.trim_end());
                }
                line = "    ".into();
                (limit.saturating_sub(4), 4)
            } else {
                (room, indent)
            };
            for row in cell.wrap(room.max(1)) {
                text.push_line(&styled![line, row]);
                line = Styled::text(&" ".repeat(indent));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{Style, TextRole};
    use super::*;

    #[test]
    fn columns_are_aligned_in_colour_too() {
        let style = Style::new(true, true);
        let mut table = TextTable::default();
        table.row(["ID", "TURNS", "LAST"].map(|title| style.paint(TextRole::Dim, title)));
        table.row(["01J".into(), "3".into(), Styled::default()]);
        let drawn = table.render().shown().to_owned();
        let drawn = drawn.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert_eq!(drawn, "ID   TURNS  LAST\n01J  3\n");
    }

    #[test]
    fn last_column_is_broken_between_words() {
        let mut table = TextTable::default();
        table.row(["name", "some words that are too long"].map(Styled::from));
        table.row(["", "more of them, and so on"].map(Styled::from));
        let shown = |columns| table.render_in(columns).shown().to_owned();
        assert_eq!(
            shown(24),
            "name  some words that\n      are too long\n      more of them, and\n      so on\n"
        );
        assert_eq!(
            shown(18),
            "name\n    some words\n    that are too\n    long\n    more of them,\n    and so on\n"
        );
        assert_eq!(table.render().shown().lines().count(), 2);
    }
}
