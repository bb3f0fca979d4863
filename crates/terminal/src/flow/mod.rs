//! Text that the writer thread breaks into rows at the time of writing, when the current width of the terminal is
//! known.
//!
//! Invariants:
//! 1. The terminal never has to break a row, except a long word or a line of code that is written for good: a copy of
//!    it then contains no line end of this program. Each row is narrower than the terminal, even on a terminal that displays
//!    the row's letters with the greatest width ([`widest`](super::text::widest)). Terminals disagree on the width of
//!    emoji and of joined letters, so a row with such letters may end a few columns earlier than necessary.
//! 2. A grapheme cluster is never split, and a word is split only if it is longer than a row.
//! 3. Each row ends the colours that it begins, so no colour continues after a break between two rows.

mod row_break;
mod table;

use std::fmt::Write as _;
use std::sync::Arc;

use anstyle::Style as TextStyle;

use super::text::{Style, Styled, escape};
pub use row_break::RowBreak;
pub(crate) use row_break::last_boundary;
use row_break::{LongPiece, break_rows};
pub use table::{CellAlign, FlowTable};

/// A prefix that is wider than the row's width divided by this number is left out, so that the text has room.
const PREFIX_SHARE: usize = 2;
/// Maximum columns of a rule. A longer rule adds no information.
const RULE_COLUMNS_MAX: usize = 60;

/// A piece of text in one style, escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    text: String,
    style: TextStyle,
    /// Address that the terminal opens at a click on the text.
    link: Option<Arc<str>>,
}

impl Span {
    /// A piece of one line from any text. Tabs become spaces, and all other unsafe characters are escaped.
    pub fn new(text: &str, style: TextStyle) -> Self {
        let text = text.replace('\t', "    ");
        Self {
            text: escape::line(&text).into_owned(),
            style,
            link: None,
        }
    }

    /// Makes the text a link to this address.
    pub(crate) fn set_link(&mut self, address: &Arc<str>) {
        self.link = Some(Arc::clone(address));
    }

    /// A piece without a style.
    pub fn plain(text: &str) -> Self {
        Self::new(text, TextStyle::new())
    }

    /// The text, escaped.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A line to be broken into rows, and the prefixes of these rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowLine {
    /// Prefix of the first row.
    pub first: Vec<Span>,
    /// Prefix of the other rows.
    pub rest: Vec<Span>,
    /// The line.
    pub text: Vec<Span>,
    /// Places at which the line may be broken.
    pub breaks: RowBreak,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowPart {
    /// A line.
    Line(FlowLine),
    /// A table, or some rows of a table.
    Table(FlowTable),
    /// A rule across the text.
    Rule {
        /// Text before the rule.
        prefix: Vec<Span>,
        /// One column of the rule.
        dash: Span,
    },
}

/// An incomplete text, drawn below the complete text.
pub trait OpenText: Send + Sync + std::fmt::Debug {
    /// The current state of the text.
    fn parts(&self) -> Vec<FlowPart>;
}

impl FlowPart {
    /// The rows of the part, each without a line end.
    pub(crate) fn rows(&self, columns: usize) -> Vec<Styled> {
        // The last column stays free, because some terminals wrap the line as soon as the last column is written.
        let room = columns.saturating_sub(1).max(1);
        match self {
            Self::Line(line) => line.rows(room, LongPiece::Split),
            Self::Table(table) => table.rows(room),
            Self::Rule { prefix, dash } => {
                let left = room.saturating_sub(width_of(prefix)).max(1);
                let mut dashes = dash.clone();
                dashes.text = dash.text.repeat(left.min(RULE_COLUMNS_MAX));
                vec![row(prefix, &[dashes])]
            }
        }
    }

    /// The rows of the part, each without a line end, for text that is written once and never erased. A row may be
    /// wider than the terminal if `may_wrap` allows it for this row.
    pub(crate) fn written_rows(
        &self,
        columns: usize,
        may_wrap: impl Fn(&Styled) -> bool,
    ) -> Vec<Styled> {
        if let Self::Line(line) = self {
            let room = columns.saturating_sub(1).max(1);
            let rows = line.rows(room, LongPiece::Whole);
            if rows.iter().all(|row| row.widest() <= room || may_wrap(row)) {
                return rows;
            }
        }
        self.rows(columns)
    }

    /// The rows of the part, for tests.
    #[cfg(test)]
    pub(crate) fn shown(&self, columns: usize) -> Vec<String> {
        let rows = self.rows(columns).into_iter();
        rows.map(Styled::into_string).collect()
    }

    /// Approximate number of bytes that the part takes in a queue.
    pub(crate) fn len(&self) -> usize {
        let of = |spans: &[Span]| spans.iter().map(|span| span.text.len()).sum::<usize>();
        match self {
            Self::Line(line) => of(&line.text) + 1,
            Self::Table(table) => table.len(),
            Self::Rule { .. } => RULE_COLUMNS_MAX,
        }
    }
}

impl FlowLine {
    /// A line in which every blank has a meaning.
    pub(crate) fn code(line: &str) -> Self {
        Self {
            first: Vec::new(),
            rest: Vec::new(),
            text: vec![Span::plain(line)],
            breaks: RowBreak::Anywhere,
        }
    }

    /// An indented line that readers can skip.
    pub(crate) fn aside(line: &str, style: Style) -> Self {
        let look = if style.is_coloured() {
            TextStyle::new().dimmed().italic()
        } else {
            TextStyle::new()
        };
        Self {
            first: vec![Span::plain("  ")],
            rest: vec![Span::plain("  ")],
            text: vec![Span::new(line, look)],
            breaks: RowBreak::Words,
        }
    }

    fn rows(&self, room: usize, long: LongPiece) -> Vec<Styled> {
        let prefix = width_of(&self.first).max(width_of(&self.rest));
        let none: &[Span] = &[];
        let (first, rest, room) = if prefix * PREFIX_SHARE > room {
            (none, none, room)
        } else {
            (&*self.first, &*self.rest, room - prefix)
        };
        let rows = break_rows(&self.text, room, self.breaks, long);
        let prefixes = std::iter::once(first).chain(std::iter::repeat(rest));
        let rows = prefixes.zip(&rows);
        rows.map(|(prefix, text)| row(prefix, text)).collect()
    }
}

/// Maximum number of columns that the spans take on any terminal.
fn width_of(spans: &[Span]) -> usize {
    spans
        .iter()
        .map(|span| row_break::widest_of(&span.text))
        .sum()
}

/// One row with its colours, without blanks at its end.
fn row(prefix: &[Span], text: &[Span]) -> Styled {
    let mut row = String::new();
    let mut spans: Vec<&Span> = prefix.iter().chain(text).collect();
    while spans
        .last()
        .is_some_and(|span| span.text.trim_end().is_empty())
    {
        spans.pop();
    }
    let last = spans.len().saturating_sub(1);
    for (at, span) in spans.into_iter().enumerate() {
        let text = if at == last {
            span.text.trim_end()
        } else {
            &span.text
        };
        let style = span.style;
        // Writing to a string cannot fail.
        let _ = match &span.link {
            Some(link) => write!(
                row,
                "\x1b]8;;{link}\x1b\\{style}{text}{style:#}\x1b]8;;\x1b\\"
            ),
            None => write!(row, "{style}{text}{style:#}"),
        };
    }
    Styled::of_escaped(row)
}
