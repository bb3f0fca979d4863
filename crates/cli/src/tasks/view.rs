//! Views of tasks.

use allstop_core::Timestamp;
use allstop_terminal::{Style, Styled, TextRole, TextTable, styled};

use super::find::FoundTask;
use super::wire::{ServerMessage, ServerTask, ServerTaskState, TaskEndInfo};
use crate::display::{age, render_receipt};
use crate::short_id::short;

/// Width of a message in the list, in columns.
const MESSAGE_COLUMNS: usize = 48;

pub(super) fn list(tasks: &[FoundTask], style: Style, now: Timestamp) -> Styled {
    if tasks.is_empty() {
        return "no tasks".into();
    }
    let mut table = TextTable::default();
    let head = ["TASK", "STATE", "UPDATED", "CONTEXT", "LAST MESSAGE"];
    table.row(head.map(|title| style.paint(TextRole::Dim, title)));
    for FoundTask { task, .. } in tasks {
        let message = task
            .history
            .last()
            .map(|message| first_line(&message.text()));
        table.row([
            styled![short(&task.id)],
            styled![
                state(&task.status.state, style),
                task.pending_stop().map_or("", |_| ", stop requested"),
                if task.is_unreadable() {
                    ", unreadable"
                } else {
                    ""
                },
            ],
            task.status
                .timestamp
                .map_or(Styled::default(), |at| age(at, now).into()),
            styled![short(&task.context_id)],
            styled![message.unwrap_or_default()].cut(MESSAGE_COLUMNS, style.pick("…", "...")),
        ]);
    }
    table.render()
}

/// The name of the state, in the colour of the state.
pub(super) fn state(state: &ServerTaskState, style: Style) -> Styled {
    let word = state.word();
    let role = match &*word {
        "completed" => TextRole::Good,
        "failed" | "rejected" => TextRole::Bad,
        "input required" | "auth required" => TextRole::Warning,
        "working" => TextRole::Strong,
        _ => return word.into(),
    };
    style.paint(role, word)
}

pub(super) fn show(task: &ServerTask, style: Style, width: usize) -> Styled {
    let mut text = Styled::default();
    let at = task.status.timestamp.map(|at| format!(" since {at}"));
    text.push_line(&styled![
        style.paint(TextRole::Strong, format!("task {}", task.id)),
        " ",
        state(&task.status.state, style),
        at.unwrap_or_default(),
    ]);
    text.push_line(&style.paint(TextRole::Dim, format!("context {}", task.context_id)));
    if let Some(pending) = task.pending_stop() {
        text.push_line(&style.paint(TextRole::Warning, pending));
    }
    if let Some(lost) = task.lost_worker() {
        text.push_line(&style.paint(TextRole::Warning, lost));
    }
    for message in &task.history {
        let who = if message.is_of_user() {
            "user"
        } else {
            "agent"
        };
        text.push(&said(who, &message.text(), style));
    }
    let end = task.end();
    if let Some(message) = said_by_agent(task.status.message.as_ref(), &end) {
        text.push(&said("agent", &message, style));
    }
    for artifact in &task.artifacts {
        text.push(&said(artifact.name(), &artifact.text(), style));
    }
    text.push(&self::end(&end, style, width));
    text
}

/// Text of a status message. `None` if the text is only the error, which is shown separately.
pub(super) fn said_by_agent(message: Option<&ServerMessage>, end: &TaskEndInfo) -> Option<String> {
    let text = message?.text();
    (end.error.as_ref() != Some(&text)).then_some(text)
}

/// Error and receipt (report of the stop) of a task's end.
pub(super) fn end(end: &TaskEndInfo, style: Style, width: usize) -> Styled {
    let mut text = Styled::default();
    if let Some(error) = &end.error {
        text.push_line(&styled![style.paint(TextRole::Bad, "error:"), " ", error]);
    }
    match (&end.receipt, &end.cause) {
        (Some(receipt), _) => text.push(&render_receipt(receipt, style, width)),
        (None, Some(cause)) => text.push_line(&styled![format!("cause: {cause}")]),
        (None, None) => {}
    }
    text
}

/// A text below the name of its author.
pub(super) fn said(who: &str, message: &str, style: Style) -> Styled {
    let mut text = Styled::default();
    let mut lines = message.lines();
    let who = style.paint(TextRole::Dim, format!("{who}:"));
    text.push_line(&styled![who, " ", lines.next().unwrap_or_default()]);
    for line in lines {
        text.push_line(&styled!["  ", line]);
    }
    text
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
