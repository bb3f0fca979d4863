//! `allstop ps`: the open sessions of this user and their work, as the processes with these sessions report them.

mod json;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allstop_core::{SessionId, Usage};
use allstop_log::Log;
use allstop_scope::Scope;
use allstop_terminal::{OutputPriority, Style, Styled, TextRole, duration, styled};

use super::open_session::{nats_servers, stops_in_store};
use super::sessions;
use super::unreported_sessions::{LeftSession, UnreportedSessions, unreported_sessions};
use crate::args::PsArgs;
use crate::control::UNREAD;
use crate::display::{to_stop, waits_for, work_line};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;
use crate::short_id::short;
use crate::stream_reader::StreamReader;
use allstop_remote::{
    OwnedCommandReport, OwnedSessionReport, ProcessReport, RemoteError, RemoteProcess,
    RunningTurnReport, WorkReport, processes,
};

/// Refresh interval of `--watch`.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Number of refreshes of `--watch` after which the store is scanned again for work that no process owns. The scans are
/// rare, because each scan reads all sessions.
const LOOKS_AT_STORE: u64 = 10;

/// Maximum wait for a process without a socket to release its session, such as another `allstop stop`.
const HELD_MAX: Duration = Duration::from_secs(1);

/// Pause between two looks during [`HELD_MAX`].
const HELD_AGAIN: Duration = Duration::from_millis(50);

/// Columns before the label of a row.
const INDENT: usize = 4;

/// Minimum columns of a label, also on a narrow terminal.
const LABEL_COLUMNS_MIN: usize = 8;

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn ps(args: &PsArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let flags = SameFlags::of_store(&args.store);
    let store = open_store(args, host).await;
    let scope = Scope::root("search for left work", host.scopes());
    let mut unreported = UnreportedSessions {
        unexamined: store.as_ref().err().cloned().into_iter().collect(),
        ..UnreportedSessions::default()
    };
    let log = store.ok().flatten();
    let mut is_silent = false;
    let mut reader = StreamReader::new(args.watch);
    let held_end = Instant::now() + HELD_MAX;
    for look in 0_u64.. {
        let mut found = processes(&host.sockets)
            .await
            .map_err(|error| failed(&error))?;
        let is_meant =
            |report: &ProcessReport| stops_in_store(&args.store, report.store.as_deref());
        found.retain(|(_, report)| report.as_ref().map_or(true, is_meant));
        is_silent = found.iter().any(|(_, report)| report.is_err());
        if let Some(log) = &log
            && (!args.watch || look.is_multiple_of(LOOKS_AT_STORE))
        {
            let asked = found.iter().map(|(process, _)| process.number).collect();
            unreported = unreported_sessions(&**log, &open_in(&found), &asked, &scope).await?;
        }
        // Another `allstop stop` releases its session soon. Then the list is complete.
        let is_held = !unreported.unreachable.is_empty();
        if is_held && !args.watch && Instant::now() < held_end {
            tokio::time::sleep(HELD_AGAIN).await;
            continue;
        }
        if args.json {
            for (_, report) in found.iter().filter(|_| !args.watch) {
                if let Err(error) = report {
                    host.print_problem(&CliError::failure(error.to_string()));
                }
            }
            stdout.json(&json::line(&found, &unreported), OutputPriority::Last);
        } else {
            if args.watch && stdout.is_terminal() {
                stdout.clear_screen();
            }
            let columns = stdout.columns();
            let mut servers = describe_servers(&found, style);
            let mut text = describe(&found, style, columns);
            for problem in unreported.problems() {
                text.push_line(&style.paint(TextRole::Warning, problem));
            }
            for session in &unreported.left {
                text.push(&describe_left(session, &flags, style, columns));
            }
            if text.is_empty() {
                let store = if log.is_some() {
                    ", and the store has no work that was left running"
                } else {
                    ""
                };
                text.push_line(&format_args!("no session is open{store}"));
            }
            servers.push(&text);
            stdout.lines(servers, OutputPriority::Last);
        }
        if !args.watch {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = reader.gone() => return Ok(UNREAD),
        }
    }
    Ok(u8::from(is_silent || !unreported.problems().is_empty()))
}

/// Opens the store to list work that no process owns. The open sessions can be listed without the store.
///
/// # Errors
/// If the store may contain work that cannot be listed, because the store cannot be read. The error is one line.
async fn open_store(args: &PsArgs, host: &ProcessHost) -> Result<Option<Arc<dyn Log>>, String> {
    let problem = match sessions::open(&args.store, host).await {
        Ok(log) => return Ok(Some(log)),
        Err(problem) => problem,
    };
    let message = &problem.message;
    let said = format!("work that was left running is not listed: {message}");
    // A store on NATS servers is never searched, and an absent store contains no work.
    let is_on_servers = args.store.store.as_deref().and_then(nats_servers).is_some();
    if is_on_servers || problem.is_not_found() {
        host.note(&said);
        return Ok(None);
    }
    Err(said)
}

fn open_in(found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)]) -> HashSet<SessionId> {
    let reports = found.iter().filter_map(|(_, report)| report.as_ref().ok());
    let sessions = reports.flat_map(|process| &process.sessions);
    sessions.map(|session| session.session_id.clone()).collect()
}

/// Describes background work that runs although no process has its session open.
fn describe_left(
    session: &LeftSession,
    flags: &SameFlags,
    style: Style,
    columns: Option<usize>,
) -> Styled {
    let mut about = vec!["work that was left running".to_owned()];
    about.extend(session.folder.as_deref().map(str::to_owned));
    let mut text = Styled::default();
    let state = style.paint(TextRole::Warning, "not open");
    text.push_line(&headline(session.id.as_str(), &state, &about, style));
    for work in &session.work {
        let place = if work.is_out_of_view() {
            ", in another PID namespace"
        } else {
            ""
        };
        let id = styled![format_args!("  {}{place}", work.id)];
        text.push_line(&labelled(styled![&*work.name], id, style, columns));
    }
    if let Some(said) = to_stop(session.work.len(), &flags.stop(&session.id)) {
        text.push_line(&style.paint(TextRole::Dim, format_args!("  {said}")));
    }
    text
}

pub(super) fn failed(error: &std::io::Error) -> CliError {
    CliError::failure(format!("the sockets of sessions cannot be read: {error}"))
}

fn describe(
    found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)],
    style: Style,
    columns: Option<usize>,
) -> Styled {
    let mut text = Styled::default();
    for (_, report) in found {
        match report {
            Ok(process) => {
                if process.is_starting {
                    text.push_line(&describe_start(process, style));
                }
                for session in &process.sessions {
                    text.push(&describe_session(process, session, style, columns));
                }
                for command in &process.commands {
                    text.push(&describe_command(process, command, style, columns));
                }
            }
            Err(error) => text.push_line(&style.paint(TextRole::Warning, error.to_string())),
        }
    }
    text
}

/// Describes the servers without an open session and without a command.
fn describe_servers(
    found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)],
    style: Style,
) -> Styled {
    let mut text = Styled::default();
    let reports = found.iter().filter_map(|(_, report)| report.as_ref().ok());
    let is_ready = |report: &&ProcessReport| {
        report.is_server && report.sessions.is_empty() && report.commands.is_empty()
    };
    for server in reports.filter(is_ready) {
        let ProcessReport { command, pid, .. } = server;
        let about = format!("{command} in process {pid}, {}", server.folder.display());
        text.push_line(&styled![
            style.paint(TextRole::Good, "ready"),
            "  ",
            style.paint(TextRole::Dim, Styled::from(about))
        ]);
    }
    text
}

/// Describes a process that has not opened its session yet.
fn describe_start(process: &ProcessReport, style: Style) -> Styled {
    let ProcessReport {
        command,
        pid,
        folder,
        ..
    } = process;
    let about = format!(
        "{command} in process {pid}, {}; to stop it: kill {pid}",
        folder.display()
    );
    styled![
        style.paint(TextRole::Warning, "starts"),
        "  ",
        style.paint(TextRole::Dim, Styled::from(about))
    ]
}

fn describe_session(
    process: &ProcessReport,
    session: &OwnedSessionReport,
    style: Style,
    columns: Option<usize>,
) -> Styled {
    let state = match (session.questions.first(), session.is_busy) {
        (Some(_), _) => style.paint(TextRole::Warning, "asks"),
        (None, true) => style.paint(TextRole::Good, "runs"),
        (None, false) => style.paint(TextRole::Dim, "idle"),
    };
    let folder = process.folder.display();
    let mut about = vec![
        format!("{} in process {}", process.command, process.pid),
        session.model.clone(),
        folder.to_string(),
    ];
    match &session.turn {
        Some(turn) => about.extend(describe_turn(turn, style)),
        None => about.push(format!("for {}", whole(session.quiet_ms))),
    }
    let mut text = Styled::default();
    text.push_line(&headline(
        session.session_id.as_str(),
        &state,
        &about,
        style,
    ));
    for question in &session.questions {
        text.push_line(&styled!["  ? ", question]);
    }
    for work in &session.work {
        text.push_line(&row(work, style, columns));
    }
    text
}

/// Describes a command that belongs to no session.
fn describe_command(
    process: &ProcessReport,
    command: &OwnedCommandReport,
    style: Style,
    columns: Option<usize>,
) -> Styled {
    let about = [
        format!("{} in process {}", process.command, process.pid),
        process.folder.display().to_string(),
        format!("for {}", whole(command.age_ms)),
    ];
    let mut text = Styled::default();
    let state = style.paint(TextRole::Good, "runs");
    text.push_line(&headline(
        command.command_id.as_str(),
        &state,
        &about,
        style,
    ));
    for work in &command.work {
        text.push_line(&row(work, style, columns));
    }
    text
}

/// First line about a session or a command.
fn headline(id: &str, state: &Styled, about: &[String], style: Style) -> Styled {
    styled![
        style.paint(TextRole::Strong, short(id)),
        "  ",
        state,
        "  ",
        style.paint(TextRole::Dim, Styled::from(about.join(", ")))
    ]
}

/// Describes the age of the turn, and its tokens.
fn describe_turn(turn: &RunningTurnReport, style: Style) -> Vec<String> {
    let mut words = vec![format!("turn {} for {}", turn.turn, whole(turn.age_ms))];
    if turn.usage != Usage::default() {
        words.push(format!(
            "tokens {} {} {} {}",
            style.pick("↑", "in"),
            turn.usage.input_tokens,
            style.pick("↓", "out"),
            turn.usage.output_tokens,
        ));
    }
    words
}

/// Formats a piece of work as one row. The age and the id are never cut; the label gets the remaining columns.
fn row(work: &WorkReport, style: Style, columns: Option<usize>) -> Styled {
    let age = work.age_ms.map(|age| format!("  {}", whole(age)));
    let waits = work
        .item
        .waits_for
        .map(|reason| format!("  {}", waits_for(reason)));
    let about = styled![waits.or(age).unwrap_or_default(), "  ", &*work.item.id];
    let named = format!(" ({})", work.item.id);
    let line = work_line(&work.item);
    let label = line.strip_suffix(&*named).unwrap_or(&line);
    labelled(label.into(), about, style, columns)
}

fn labelled(mut label: Styled, about: Styled, style: Style, columns: Option<usize>) -> Styled {
    if let Some(columns) = columns {
        // The last column stays free, because some terminals wrap the line as soon as the last column is written.
        let room = columns.saturating_sub(about.width() + INDENT + 1);
        label = label.cut(room.max(LABEL_COLUMNS_MIN), style.pick("…", "..."));
    }
    let sign = style.pick("▶", ">");
    styled!["  ", sign, " ", label, style.paint(TextRole::Dim, about)]
}

fn whole(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};

    use super::*;

    #[test]
    fn age_and_id_of_a_row_stay_whole() {
        let state = ItemState::StillRunning {
            why: NotStoppedReason::ProcessesLeft,
        };
        let mut item = ReceiptItem::new(ItemKind::ToolCall, "call_1", "shell", state);
        item.label = Some(Arc::from(
            "for i in 1 2 3 4 5 6 7 8; do sleep $i; echo $i; done",
        ));
        let work = WorkReport {
            item,
            age_ms: Some(61_000),
        };
        for columns in [38, 60, 80, 120] {
            let row = row(&work, Style::new(false, true), Some(columns));
            assert!(row.width() < columns, "{}", row.shown());
            assert!(
                row.shown().ends_with("1 min 01 s  call_1"),
                "{}",
                row.shown()
            );
        }
    }
}
