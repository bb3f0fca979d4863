//! Tables: columns that shrink to the terminal's width, or records if the terminal is too narrow for columns.

use unicode_width::UnicodeWidthStr as _;

use super::row_break::{LongPiece, RowBreak, break_rows};
use super::{FlowLine, Span, row, width_of};
use crate::text::Styled;

/// Minimum width of a readable cell, in columns of the terminal. If a cell is narrower, each row becomes a record.
const CELL_COLUMNS_MIN: usize = 6;

/// Alignment of text in its column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CellAlign {
    /// At the left edge.
    #[default]
    Left,
    /// In the middle.
    Centre,
    /// At the right edge.
    Right,
}

/// A table, or some rows of a table that is too long to be drawn at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowTable {
    /// Prefix of each row.
    pub prefix: Vec<Span>,
    /// Cells of the header.
    pub header: Vec<Vec<Span>>,
    /// True if the header is drawn. False for a later part of a table that is drawn in several parts.
    pub has_header: bool,
    /// Rows of cells.
    pub rows: Vec<Vec<Vec<Span>>>,
    /// Alignment of each column.
    pub aligns: Vec<CellAlign>,
    /// Widths that the cells need, by column.
    pub widths: Vec<usize>,
    /// Separator between two cells, and the two parts of the row below the header: ` │ `, `─`, `─┼─`.
    pub lines: [&'static str; 3],
}

impl FlowTable {
    /// Sets the widths of the columns from the current cells.
    pub(crate) fn measure(&mut self) {
        let cells = std::iter::once(&self.header).chain(&self.rows);
        let mut widths = vec![1; self.header.len()];
        for row in cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(width_of(cell));
            }
        }
        self.widths = widths;
    }

    pub(super) fn len(&self) -> usize {
        let of = |row: &Vec<Vec<Span>>| {
            row.iter()
                .flatten()
                .map(|span| span.text.len() + 3)
                .sum::<usize>()
        };
        self.rows.iter().map(of).sum::<usize>() + of(&self.header)
    }

    pub(super) fn rows(&self, room: usize) -> Vec<Styled> {
        let left = room.saturating_sub(width_of(&self.prefix));
        match self.fit(left) {
            Some(widths) => self.columns(&widths),
            None => self.records(room),
        }
    }

    /// Calculates the width of each column; `None` if the columns have no room. The widest columns shrink first.
    fn fit(&self, room: usize) -> Option<Vec<usize>> {
        let between = self.widths.len().saturating_sub(1) * width_of(&[Span::plain(self.lines[0])]);
        let room = room.checked_sub(between)?;
        let shrunk = |most: usize| self.widths.iter().map(move |width| (*width).min(most));
        let widest = self.widths.iter().copied().max().unwrap_or(1);
        if shrunk(widest).sum::<usize>() <= room {
            return Some(self.widths.clone());
        }
        let (mut low, mut high) = (0, widest);
        while low + 1 < high {
            let middle = usize::midpoint(low, high);
            if shrunk(middle).sum::<usize>() <= room {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low >= CELL_COLUMNS_MIN).then(|| shrunk(low).collect())
    }

    fn columns(&self, widths: &[usize]) -> Vec<Styled> {
        let mut rows = Vec::new();
        if self.has_header {
            rows.extend(self.row(&self.header, widths));
            let dashes = widths.iter().map(|width| self.lines[1].repeat(*width));
            let rule = dashes.collect::<Vec<_>>().join(self.lines[2]);
            rows.push(row(&self.prefix, &[Span::plain(&rule)]));
        }
        rows.extend(self.rows.iter().flat_map(|row| self.row(row, widths)));
        rows
    }

    fn row(&self, cells: &[Vec<Span>], widths: &[usize]) -> Vec<Styled> {
        let broken: Vec<_> = widths
            .iter()
            .enumerate()
            .map(|(at, width)| {
                let cell = cells.get(at).map(Vec::as_slice).unwrap_or_default();
                break_rows(cell, *width, RowBreak::Words, LongPiece::Split)
            })
            .collect();
        let height = broken.iter().map(Vec::len).max().unwrap_or(1);
        let line = |line: usize| {
            let mut spans = Vec::new();
            for (at, (cell, width)) in broken.iter().zip(widths).enumerate() {
                if at > 0 {
                    spans.push(Span::plain(self.lines[0]));
                }
                let text = cell.get(line).map(Vec::as_slice).unwrap_or_default();
                let align = self.aligns.get(at).copied().unwrap_or_default();
                pad(text, *width, align, &mut spans);
            }
            row(&self.prefix, &spans)
        };
        (0..height).map(line).collect()
    }

    /// Draws each cell on a separate line, after the name of its column.
    fn records(&self, room: usize) -> Vec<Styled> {
        let mut rows = Vec::new();
        for (number, cells) in self.rows.iter().enumerate() {
            if number > 0 || !self.has_header {
                rows.push(row(&self.prefix, &[]));
            }
            for (name, cell) in self.header.iter().zip(cells) {
                let mut text = name.clone();
                text.push(Span::plain(": "));
                text.extend(cell.iter().cloned());
                let mut rest = self.prefix.clone();
                rest.push(Span::plain("  "));
                let line = FlowLine {
                    first: self.prefix.clone(),
                    rest,
                    text,
                    breaks: RowBreak::Words,
                };
                rows.extend(line.rows(room, LongPiece::Split));
            }
        }
        if self.rows.is_empty() && self.has_header {
            let names = self.header.join(&Span::plain(", "));
            let line = FlowLine {
                first: self.prefix.clone(),
                rest: self.prefix.clone(),
                text: names,
                breaks: RowBreak::Words,
            };
            rows.extend(line.rows(room, LongPiece::Split));
        }
        rows
    }
}

/// Removes the blanks at the end of a cell's text, then pads the cell with blanks to this width. The text is measured
/// with the width that most terminals give it.
fn pad(text: &[Span], width: usize, align: CellAlign, to: &mut Vec<Span>) {
    let mut text = text.to_vec();
    if let Some(last) = text.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    let used: usize = text.iter().map(|span| span.text.width()).sum();
    let blanks = width.saturating_sub(used);
    let before = match align {
        CellAlign::Left => 0,
        CellAlign::Centre => blanks / 2,
        CellAlign::Right => blanks,
    };
    to.push(Span::plain(&" ".repeat(before)));
    to.extend(text);
    to.push(Span::plain(&" ".repeat(blanks - before)));
}
