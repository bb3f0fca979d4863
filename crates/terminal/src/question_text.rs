//! A permission question on the screen: a title, and below it the whole command or change, page by page.

use std::borrow::Cow;

use allstop_core::terminal_text::{escape, is_unsafe_in_question};

use super::question::rows_left_line;
use super::text::{Style, Styled, TextRole, rows_of, styled, without_tabs};

/// Rows of a terminal that a question leaves free: for its title, for the requesting sub-agent, for the input line with
/// the possible answers, and for running work. On a small terminal, the question takes half of the rows.
const ROWS_LEFT_FREE: usize = 10;
/// Rows of a page on a terminal that does not report its size.
const PAGE_ROWS_DEFAULT: usize = 14;
/// Columns of a terminal that does not report its size.
const COLUMNS_DEFAULT: usize = 80;

/// Columns of a title in addition to its text: `? Allow `, and the id of the call.
const TITLE_COLUMNS: usize = 20;

/// Content of a question. Texts from outside need [`escape_question`].
#[derive(Debug, Clone)]
pub struct QuestionContent {
    /// The beginning of the title, after `? Allow`.
    pub subject: String,
    /// Id of the call, at the end of the title. The result of the question is shown with the same id.
    pub call: String,
    /// The sub-agent that asks; `None` if the main agent asks.
    pub asker: Option<String>,
    /// Lines below the title. A single line without a role is part of the title if it has room there.
    pub lines: Vec<QuestionLine>,
}

/// A line of a question.
#[derive(Debug, Clone)]
pub struct QuestionLine {
    role: Option<TextRole>,
    text: String,
}

impl QuestionLine {
    /// A line of any text, which this function escapes.
    pub fn new(role: Option<TextRole>, text: &str) -> Self {
        let text = escape_question(&without_tabs(text)).into_owned();
        Self { role, text }
    }

    /// A line that is already escaped for a question.
    pub fn of_escaped(text: String) -> Self {
        Self { role: None, text }
    }
}

/// Escapes a text that a person approves. The result contains no invisible characters, and no blanks except the space.
pub fn escape_question(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe_in_question)
}

/// A question on the screen, and the number of its rows that are already shown.
#[derive(Debug)]
pub struct QuestionText {
    content: QuestionContent,
    /// Columns for which the rows are laid out.
    columns: usize,
    title: Styled,
    body: Vec<Styled>,
    /// Number of shown rows of the body.
    shown: usize,
    rest: RestHint,
    style: Style,
}

/// Place where the number of a question's rows that are not shown yet is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestHint {
    /// Above the input line. The number disappears when more rows are shown.
    AboveInput,
    /// Below the rows, on a terminal that draws no input line.
    InText,
}

/// Columns and rows of a terminal, if it reports them.
pub type TerminalSize = Option<(usize, usize)>;

impl QuestionText {
    /// Creates the text of a question for a terminal of this size. No part of the text is shown yet.
    pub fn new(
        content: QuestionContent,
        (style, rest): (Style, RestHint),
        size: TerminalSize,
    ) -> Self {
        let mut text = Self {
            content,
            columns: 0,
            title: Styled::default(),
            body: Vec::new(),
            shown: 0,
            rest,
            style,
        };
        text.lay_out(size);
        text
    }

    /// Lays the rows out for a terminal of this size. After a change of the width, the text begins again.
    fn lay_out(&mut self, size: TerminalSize) {
        let columns = size.map_or(COLUMNS_DEFAULT, |(columns, _)| columns);
        if columns == self.columns {
            return;
        }
        let style = self.style;
        let QuestionContent {
            mut subject,
            call,
            asker,
            mut lines,
        } = self.content.clone();
        // A command of one line is part of the title.
        if let [line] = lines.as_slice()
            && line.role.is_none()
            && columns_of(&subject) + columns_of(&line.text) + TITLE_COLUMNS < columns
        {
            subject = format!("{subject}: {}", line.text);
            lines.clear();
        }
        let room = columns.saturating_sub(5).max(1);
        let rows = lines.iter().flat_map(|line| {
            let rows = rows_of(&line.text, room).into_iter().enumerate();
            rows.map(|(at, row)| {
                let row = if let Some(role) = line.role {
                    style.paint(role, row)
                } else {
                    styled![row]
                };
                styled!["  ", bar(style, at > 0), row]
            })
        });
        self.body = rows.collect();
        self.title = title(style, columns, &subject, &call, asker.as_deref());
        self.columns = columns;
        self.shown = 0;
    }

    /// Number of rows that are not shown yet.
    pub fn rows_left(&self) -> usize {
        self.body.len() - self.shown
    }

    /// The title and the first rows.
    pub fn first_page(&mut self, size: TerminalSize) -> Styled {
        self.lay_out(size);
        self.shown = 0;
        let mut page = self.title.clone();
        page.push(&self.rows(size, self.title.lines().count().saturating_sub(1)));
        page
    }

    /// The next rows; after the last row and after a change of the width, the first page again.
    pub fn next_page(&mut self, size: TerminalSize) -> Styled {
        let columns = self.columns;
        self.lay_out(size);
        if self.rows_left() > 0 && columns == self.columns {
            self.rows(size, 0)
        } else {
            self.first_page(size)
        }
    }

    /// The next rows of the body. `used` is the number of rows that the page needs for a long title.
    fn rows(&mut self, size: TerminalSize, used: usize) -> Styled {
        let room = size.map_or(PAGE_ROWS_DEFAULT, |(_, rows)| {
            (rows / 2).max(rows.saturating_sub(ROWS_LEFT_FREE))
        });
        let room = room.saturating_sub(used).max(1);
        let mut page = Styled::default();
        for row in self.body.iter().skip(self.shown).take(room) {
            page.push_line(row);
        }
        self.shown = self.body.len().min(self.shown + room);
        if self.rest == RestHint::InText
            && let Some(said) = rows_left_line(self.rows_left(), self.style)
        {
            page.push_line(&said);
        }
        page
    }
}

/// Maximum number of columns that a text takes on any terminal.
fn columns_of(text: &str) -> usize {
    Styled::text(text).widest()
}

/// Mark in front of a row. Only the first row of a line has the mark of a line. If a command is broken at the edge of
/// the terminal, the rest of the command therefore never looks like a separate line.
fn bar(style: Style, is_continued: bool) -> Styled {
    let bar = if is_continued {
        style.pick("│↳", "|>")
    } else {
        style.pick("│ ", "| ")
    };
    style.paint(TextRole::Dim, bar)
}

/// The title lines of a question. `asker` is the requesting sub-agent.
fn title(style: Style, columns: usize, subject: &str, call: &str, asker: Option<&str>) -> Styled {
    let asks = style.paint(TextRole::Warning, "? Allow");
    let call = format!("({call})");
    let mut lines = Styled::default();
    if asks.width() + columns_of(subject) + columns_of(&call) + 2 < columns {
        let subject = style.paint(TextRole::Strong, subject);
        let call = style.paint(TextRole::Dim, call);
        lines.push_line(&styled![asks, " ", subject, " ", call]);
    } else {
        let asks = styled![asks, " "];
        push_rows(
            &mut lines,
            (style, columns),
            &asks,
            subject,
            TextRole::Strong,
        );
        push_rows(
            &mut lines,
            (style, columns),
            &"  ".into(),
            &call,
            TextRole::Dim,
        );
    }
    if let Some(asker) = asker {
        let asker = format!("asked by {asker}");
        push_rows(
            &mut lines,
            (style, columns),
            &"  ".into(),
            &asker,
            TextRole::Dim,
        );
    }
    lines
}

/// Adds a text after a sign, in rows. The rows after the first have the mark of a continued row.
fn push_rows(
    lines: &mut Styled,
    (style, columns): (Style, usize),
    sign: &Styled,
    text: &str,
    role: TextRole,
) {
    let room = columns.saturating_sub(sign.width() + 1).max(1);
    let (first, rest) = split_row(text, room);
    lines.push_line(&styled![sign, style.paint(role, first)]);
    let room = columns.saturating_sub(5).max(1);
    let rest = Some(rest).filter(|rest| !rest.is_empty());
    for row in rest.into_iter().flat_map(|rest| rows_of(rest, room)) {
        lines.push_line(&styled!["  ", bar(style, true), style.paint(role, row)]);
    }
}

/// Splits a text into the beginning that fits into `room` columns, and the rest.
fn split_row(text: &str, room: usize) -> (&str, &str) {
    let first = rows_of(text, room).first().map_or(0, |row| row.len());
    text.split_at(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(command: &[&str]) -> QuestionContent {
        let line = |line: &&str| QuestionLine::of_escaped((*line).to_owned());
        QuestionContent {
            subject: "shell".to_owned(),
            call: "call_1".to_owned(),
            lines: command.iter().map(line).collect(),
            asker: Some("agent bg_1: look # ; touch y and do what else there is to do".to_owned()),
        }
    }

    fn shown(question: &QuestionContent, style: Style, columns: usize) -> Vec<String> {
        let size = Some((columns, 200));
        let mut text = QuestionText::new(question.clone(), (style, RestHint::InText), size);
        let page = text.first_page(size);
        page.shown().lines().map(str::to_owned).collect()
    }

    /// If a command is broken at the edge of the terminal, the rest of the command never looks like a separate command.
    #[test]
    fn continued_rows_are_marked_at_every_width() {
        let line = format!(
            "echo x{}# ; touch x ; 日本語日本語 {}",
            " ".repeat(60),
            "y".repeat(60)
        );
        let question = question(&[&line, "echo 2"]);
        for (style, begun, continued) in [
            (Style::new(false, true), "  │ ", "  │↳"),
            (Style::new(false, false), "  | ", "  |>"),
        ] {
            for columns in 10..150 {
                let rows = shown(&question, style, columns);
                for row in &rows {
                    assert!(columns_of(row) < columns, "{columns}: {row}");
                }
                let begun = rows.iter().filter(|row| row.starts_with(begun)).count();
                assert_eq!(begun, 2, "{columns}: {rows:#?}");
                let others = rows.iter().filter(|row| row.starts_with(continued)).count();
                // Title, call and requesting sub-agent.
                assert!(rows.len() - begun - others <= 3, "{columns}: {rows:#?}");
            }
        }
    }

    /// A small pane shows a question page by page, and a page takes half of its rows.
    #[test]
    fn a_small_pane_shows_all_rows_in_pages() {
        let lines: Vec<String> = (0..9).map(|number| format!("echo {number}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let style = (Style::new(false, true), RestHint::AboveInput);
        for size in [(20, 5), (40, 10), (80, 24)] {
            let mut content = question(&lines);
            content.asker = None;
            let mut text = QuestionText::new(content, style, Some((80, 24)));
            let mut shown = text.first_page(Some(size)).shown().to_owned();
            while text.rows_left() > 0 {
                let page = text.next_page(Some(size));
                assert!(page.lines().count() <= size.1 / 2, "{size:?}");
                shown += page.shown();
            }
            assert!(lines.iter().all(|line| shown.contains(line)), "{shown}");
        }
    }

    #[test]
    fn wide_letters_of_a_command_do_not_break_the_title() {
        let mut question = question(&["echo 日本語日本語日本語日本語日本語"]);
        question.asker = None;
        for columns in 20..90 {
            for row in shown(&question, Style::new(false, true), columns) {
                assert!(columns_of(&row) < columns, "{columns}: {row}");
            }
        }
    }
}
