//! Lines with aligned columns.

use crate::terminal::Styled;

/// Lines with aligned columns, the last of them ragged.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    rows: Vec<Vec<Styled>>,
}

impl TextTable {
    /// Adds a line.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Styled; N]) {
        self.rows.push(cells.into());
    }

    /// The lines, each with its end of line.
    pub(crate) fn render(&self) -> Styled {
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
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line.push(if at == 0 { "" } else { "  " });
                line.push(&cell.pad(*width));
            }
            text.push_line(&line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::{Style, TextRole};

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
}
