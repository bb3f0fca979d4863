//! `sessions list`: a block of lines for each session, the newest first. The blocks also fit narrow terminals.

use std::num::NonZeroU32;

use allstop_log::{Log, newest_sessions};
use allstop_terminal::{Styled, TextRole, styled};
use serde::Serialize;

use super::error::SessionsError;
use super::list_row::SessionRow;
use super::{Printed, View};
use crate::json_document::DocumentSchema;

/// Default number of sessions: about one screen. A longer list is slow, because the command reads each session from its
/// last compaction (summary of older turns) on.
const SHOWN_DEFAULT: usize = 20;

/// Columns of a session's number, including the following gap.
const NUMBER_COLUMNS: usize = 4;

/// Minimum columns of a line that is cut to the width of the terminal. On a narrower terminal, such a line takes
/// several rows.
const COLUMNS_MIN: usize = 16;

/// Number of sessions to show; `None` if all are shown.
pub(super) fn limit(as_json: bool, all: bool, asked: Option<NonZeroU32>) -> Option<usize> {
    match asked {
        Some(asked) => Some(asked.get() as usize),
        None if all || as_json => None,
        None => Some(SHOWN_DEFAULT),
    }
}

#[derive(Serialize)]
struct SessionTable {
    sessions: Vec<SessionRow>,
}

pub(super) async fn list(
    log: &dyn Log,
    view: View,
    as_json: bool,
    limit: Option<usize>,
) -> Result<Printed, SessionsError> {
    let sessions = newest_sessions(log).await?;
    let all = sessions.len();
    let shown = limit.unwrap_or(all).min(all);
    let mut rows = Vec::with_capacity(shown);
    for (place, session) in sessions.into_iter().take(shown).enumerate() {
        rows.push(SessionRow::read(log, place + 1, session).await?);
    }
    if as_json {
        let table = SessionTable { sessions: rows };
        return Ok(Printed::Json(DocumentSchema::Sessions.line(&table)));
    }
    if rows.is_empty() {
        return Ok(Printed::Text("no sessions".into()));
    }
    let mut text = Styled::default();
    for row in &rows {
        text.push(&describe(row, view));
    }
    let older = all - shown;
    if older > 0 {
        let said = format!("{older} older; --all shows them");
        text.push_line(&view.style.paint(TextRole::Dim, said));
    }
    Ok(Printed::Text(text))
}

/// Formats a session: its facts, packed into lines, then the first prompt and the states on separate lines.
fn describe(row: &SessionRow, view: View) -> Styled {
    let style = view.style;
    let columns = view.width.max(COLUMNS_MIN) - NUMBER_COLUMNS;
    let mark = style.pick("…", "~");
    let separator = style.pick(" · ", " - ");
    let mut lines = vec![style.paint(TextRole::Strong, &*row.handle)];
    for fact in row.facts(view.now) {
        let fact = Styled::text(&fact);
        let last = lines.pop().unwrap_or_default();
        let longer = styled![last.clone(), separator, fact.clone()];
        if longer.width() <= columns {
            lines.push(longer);
        } else {
            lines.extend([last, fact.cut(columns, mark)]);
        }
    }
    let prompt = row.first_prompt.as_deref().unwrap_or_default();
    let prompt = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    if !prompt.is_empty() {
        lines.push(Styled::text(&prompt).cut(columns, mark));
    }
    for (role, said) in row.state() {
        let said = Styled::text(&said).wrap(columns);
        lines.extend(said.into_iter().map(|line| style.paint(role, line)));
    }
    let number = row.number.to_string();
    let mut text = Styled::default();
    for (place, line) in lines.iter().enumerate() {
        let number = if place == 0 { &*number } else { "" };
        let number = style.paint(TextRole::Dim, number).pad(NUMBER_COLUMNS);
        text.push_line(&styled![number, line.clone()].trim_end());
    }
    text
}
