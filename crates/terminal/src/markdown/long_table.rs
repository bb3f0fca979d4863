//! A table that is too long to be drawn at once. Its columns keep the widths of its first rows.

use super::blocks::{self, TextAbove};
use super::highlight::HighlightBudget;
use super::theme::AnswerTheme;
use crate::{FlowPart, FlowTable};

/// The table after its first rows.
#[derive(Debug, Clone)]
pub(super) struct LongTable {
    /// The first two lines of the table: the header, and the delimiter row.
    head: String,
    /// The table without rows.
    shape: FlowTable,
}

impl LongTable {
    /// Begins a long table with its first rows; `None` if `source` is not a single table.
    pub(super) fn begin(source: &str, theme: AnswerTheme) -> Option<Self> {
        let head: Vec<&str> = source.trim_start_matches('\n').lines().take(2).collect();
        let head = format!("{}\n", head.join("\n"));
        let mut shape = only_table(render(source, theme))?;
        shape.rows.clear();
        shape.has_header = false;
        Some(Self { head, shape })
    }

    /// Draws the next row; `None` if the line is not part of the table.
    pub(super) fn row(&self, line: &str, theme: AnswerTheme) -> Option<FlowPart> {
        let source = format!("{}{line}\n", self.head);
        let read = only_table(render(&source, theme))?;
        let rows = Some(read.rows).filter(|rows| rows.len() == 1)?;
        let shape = self.shape.clone();
        Some(FlowPart::Table(FlowTable { rows, ..shape }))
    }
}

/// Renders the parts of a table. A table has no code to highlight.
fn render(source: &str, theme: AnswerTheme) -> Vec<FlowPart> {
    let budget = &mut HighlightBudget::default();
    blocks::render(source, theme, TextAbove::Nothing, budget)
}

fn only_table(parts: Vec<FlowPart>) -> Option<FlowTable> {
    let [part] = <[FlowPart; 1]>::try_from(parts).ok()?;
    match part {
        FlowPart::Table(table) => Some(table),
        _ => None,
    }
}
