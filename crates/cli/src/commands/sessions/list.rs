//! `sessions list`.

use allstop_core::process::ProcessIdentity;
use allstop_core::{SessionId, StopReason, Timestamp, error_chain};
use allstop_log::{Log, SessionSummary, list_sessions};
use serde::Serialize;

use super::error::SessionsError;
use super::view::json;
use super::{Printed, View};
use crate::display::{TextTable, age, plain};
use crate::short_id::short;
use crate::terminal::{Styled, TextRole, styled};

pub(super) async fn list(
    log: &dyn Log,
    view: View,
    as_json: bool,
) -> Result<Printed, SessionsError> {
    let sessions = list_sessions(log).await?;
    if as_json {
        let schema = "allstop.sessions/1";
        let sessions = sessions.iter().map(SessionRow::from).collect();
        return Ok(Printed::Json(json(&SessionTable { schema, sessions })));
    }
    if sessions.is_empty() {
        return Ok(Printed::Words("no sessions".into()));
    }
    let mut table = TextTable::default();
    let head = ["SESSION", "TURNS", "LAST ENDING", "LAST ACTIVE", ""];
    table.row(head.map(|title| view.style.paint(TextRole::Dim, title)));
    for session in &sessions {
        table.row([
            styled![short(session.id.as_str())],
            match session.problem {
                None => session.turns.to_string().into(),
                Some(_) => "?".into(),
            },
            ending(session).into(),
            session
                .active_at
                .map_or(Styled::default(), |at| age(at, view.now).into()),
            remark(session, view),
        ]);
    }
    Ok(Printed::Words(table.render()))
}

fn ending(session: &SessionSummary) -> String {
    session
        .last_stop_reason
        .map_or(String::new(), |reason| plain(reason.as_str()))
}

/// Notable state of a session.
fn remark(session: &SessionSummary, view: View) -> Styled {
    let style = view.style;
    if let Some(problem) = &session.problem {
        return style.paint(TextRole::Bad, error_chain(problem));
    }
    match (&session.owner, session.turn_open) {
        (Some(owner), true) => {
            let said = format!("a turn runs in process {}", owner.pid);
            style.paint(TextRole::Good, said)
        }
        (Some(owner), false) => format!("in use by process {}", owner.pid).into(),
        (None, true) => style.paint(
            TextRole::Warning,
            "a turn was cut off by a crash; the next run ends it",
        ),
        (None, false) => Styled::default(),
    }
}

#[derive(Serialize)]
struct SessionTable<'a> {
    schema: &'static str,
    sessions: Vec<SessionRow<'a>>,
}

#[derive(Serialize)]
struct SessionRow<'a> {
    session_id: &'a SessionId,
    /// The number of its last record.
    version: u64,
    turns: Option<usize>,
    last_stop_reason: Option<StopReason>,
    turn_open: Option<bool>,
    active_at: Option<Timestamp>,
    owner: Option<&'a ProcessIdentity>,
    problem: Option<String>,
}

impl<'a> From<&'a SessionSummary> for SessionRow<'a> {
    fn from(session: &'a SessionSummary) -> Self {
        let readable = session.problem.is_none();
        Self {
            session_id: &session.id,
            version: session.version.0,
            turns: readable.then_some(session.turns),
            last_stop_reason: session.last_stop_reason,
            turn_open: readable.then_some(session.turn_open),
            active_at: session.active_at,
            owner: session.owner.as_ref(),
            problem: session.problem.as_ref().map(|problem| error_chain(problem)),
        }
    }
}
