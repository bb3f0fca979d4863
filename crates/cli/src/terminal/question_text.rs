//! A question as it is shown: a title, and below it the whole command or change, page by page.

use allstop_core::terminal_text::{escape, is_unsafe_in_question};
use allstop_tools::EffectPreview;

use super::shown_question::ShownQuestion;
use super::text::{Style, Styled, TextRole, rows_of, styled, without_tabs};
use crate::display::{change_counts, change_role};

/// Rows of a terminal that a question leaves free: for its title, for the sub-agent that asks, for the line that is typed
/// into with what may be answered, and for work that runs.
const ROWS_LEFT_FREE: usize = 10;
/// Rows of a page of a terminal that does not say how many it has.
const PAGE_ROWS_DEFAULT: usize = 14;
/// Columns of a terminal that does not say.
const COLUMNS_DEFAULT: usize = 80;

/// A question on the screen, as far as it is shown.
#[derive(Debug)]
pub(super) struct QuestionText {
    title: Styled,
    body: Vec<Styled>,
    /// Rows of the body that are shown.
    shown: usize,
    style: Style,
}

/// Columns and rows of a terminal, if it says them.
pub(super) type TerminalSize = Option<(usize, usize)>;

impl QuestionText {
    /// `call`: the id of its call, escaped.
    pub(super) fn new(
        question: &ShownQuestion,
        call: &str,
        style: Style,
        size: TerminalSize,
    ) -> Self {
        let columns = size.map_or(COLUMNS_DEFAULT, |(columns, _)| columns);
        let mut subject = question.subject.clone();
        let mut lines = body_lines(question, &mut subject, style);
        // A command of one line stands in the title.
        if let [line] = lines.as_slice()
            && line.role.is_none()
            && subject.chars().count() + line.text.chars().count() + 20 < columns
        {
            subject = format!("{subject}: {}", line.text);
            lines.clear();
        }
        let bar = style.pick("│", "|");
        let room = columns.saturating_sub(5).max(1);
        let rows = lines.iter().flat_map(|line| {
            let rows = rows_of(&line.text, room).into_iter();
            rows.map(|row| {
                let row = if let Some(role) = line.role {
                    style.paint(role, row)
                } else {
                    styled![row]
                };
                styled!["  ", style.paint(TextRole::Dim, bar), " ", row]
            })
        });
        Self {
            title: title(style, &subject, call, question.asker.as_deref()),
            body: rows.collect(),
            shown: 0,
            style,
        }
    }

    /// True if something of it was not shown.
    pub(super) fn has_more(&self) -> bool {
        self.shown < self.body.len()
    }

    /// The title and the first rows.
    pub(super) fn first_page(&mut self, size: TerminalSize) -> Styled {
        self.shown = 0;
        let mut page = self.title.clone();
        page.push(&self.rows(size));
        page
    }

    /// The next rows; after the last, it begins again.
    pub(super) fn next_page(&mut self, size: TerminalSize) -> Styled {
        if self.has_more() {
            self.rows(size)
        } else {
            self.first_page(size)
        }
    }

    fn rows(&mut self, size: TerminalSize) -> Styled {
        let room = size.map_or(PAGE_ROWS_DEFAULT, |(_, rows)| {
            rows.saturating_sub(ROWS_LEFT_FREE).max(1)
        });
        let mut page = Styled::default();
        for row in self.body.iter().skip(self.shown).take(room) {
            page.push_line(row);
        }
        self.shown = self.body.len().min(self.shown + room);
        let more = self.body.len() - self.shown;
        if more > 0 {
            let lines = if more == 1 { "line" } else { "lines" };
            let (dots, dot) = (self.style.pick("…", "..."), self.style.pick("·", "-"));
            let said = format!("  {dots} {more} more {lines} {dot} v shows more");
            page.push_line(&self.style.paint(TextRole::Warning, said));
        }
        page
    }
}

/// The lines of a question above its input line. `asker`: the sub-agent that asks.
fn title(style: Style, text: &str, call: &str, asker: Option<&str>) -> Styled {
    let asks = style.paint(TextRole::Warning, "? Allow");
    let text = style.paint(TextRole::Strong, text);
    let call = style.paint(TextRole::Dim, format_args!("({call})"));
    let mut lines = Styled::default();
    lines.push_line(&styled![asks, " ", text, " ", call]);
    if let Some(asker) = asker {
        let asker = format_args!("  asked by {asker}");
        lines.push_line(&style.paint(TextRole::Dim, asker));
    }
    lines
}

/// A line of a question, escaped.
struct BodyLine {
    role: Option<TextRole>,
    text: String,
}

impl BodyLine {
    fn of(role: Option<TextRole>, text: &str) -> Self {
        let text = escape(&without_tabs(text), is_unsafe_in_question).into_owned();
        Self { role, text }
    }
}

/// The lines below the title, to which a change adds its size and the file that a link leads to.
fn body_lines(question: &ShownQuestion, subject: &mut String, style: Style) -> Vec<BodyLine> {
    let mut lines = Vec::new();
    match question.preview.as_deref() {
        Some(EffectPreview::Change(change)) => {
            let asked = question.path.as_deref();
            if asked.is_some_and(|asked| asked.trim_start_matches("./") != change.path) {
                let path = escape(&change.path, is_unsafe_in_question);
                *subject = format!("{subject} (the file {path})");
            }
            subject.push_str(&change_counts(change, style));
            for line in &change.lines {
                let text = format!("{}{}", line.kind.sign(), line.text);
                lines.push(BodyLine::of(change_role(line.kind), &text));
            }
            if change.lines_left_out > 0 {
                let said = format!(
                    "{} more lines are too many to show; they are in the call's arguments",
                    change.lines_left_out
                );
                lines.push(BodyLine::of(Some(TextRole::Warning), &said));
            }
            if let Some(note) = &change.note {
                lines.push(BodyLine::of(Some(TextRole::Warning), note));
            }
            if !change.lines.is_empty() {
                return lines;
            }
        }
        Some(EffectPreview::Unavailable { reason }) => {
            let said = format!("no preview: {reason}");
            lines.push(BodyLine::of(Some(TextRole::Warning), &said));
        }
        None => {}
    }
    // They are escaped.
    let arguments = question.argument_lines.iter();
    lines.extend(arguments.map(|text| BodyLine {
        role: None,
        text: text.clone(),
    }));
    lines
}
