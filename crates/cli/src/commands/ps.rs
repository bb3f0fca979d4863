//! `allstop ps`: the sessions of this user and their work, asked of the processes that own them.

use std::time::{Duration, SystemTime};

use allstop_core::Timestamp;

use crate::args::PsArgs;
use crate::display::{age, work_line};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::remote::{OwnedSessionReport, ProcessReport, RemoteError, RemoteProcess, processes};
use crate::short_id::short;
use crate::terminal::{OutputPriority, Style, Styled, TextRole, styled};

/// Time between two looks of `--watch`.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Clears the terminal, and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs the command and gives its exit code.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn ps(args: &PsArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    loop {
        let found = processes().await.map_err(|error| failed(&error))?;
        if args.json {
            for (_, report) in &found {
                let line = report.as_ref().ok().map(serde_json::to_string);
                if let Some(Ok(line)) = line {
                    stdout.json(&line, OutputPriority::Last);
                }
            }
        } else {
            if args.watch && stdout.is_terminal() {
                stdout.answer(CLEAR, OutputPriority::Must);
            }
            let text = in_words(&found, style, SystemTime::now().into());
            stdout.lines(text, OutputPriority::Last);
        }
        if !args.watch {
            return Ok(0);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub(super) fn failed(error: &std::io::Error) -> CliError {
    CliError::failure(format!("the sockets of sessions cannot be read: {error}"))
}

fn in_words(
    found: &[(RemoteProcess, Result<ProcessReport, RemoteError>)],
    style: Style,
    now: Timestamp,
) -> Styled {
    let mut text = Styled::default();
    for (_, report) in found {
        match report {
            Ok(process) => {
                for session in &process.sessions {
                    text.push(&session_in_words(process, session, style, now));
                }
            }
            Err(error) => text.push_line(&style.paint(TextRole::Warning, error.to_string())),
        }
    }
    if text.is_empty() {
        text.push_line("nothing runs");
    }
    text
}

fn session_in_words(
    process: &ProcessReport,
    session: &OwnedSessionReport,
    style: Style,
    now: Timestamp,
) -> Styled {
    let state = match (session.questions.first(), session.is_busy) {
        (Some(_), _) => style.paint(TextRole::Warning, "asks"),
        (None, true) => style.paint(TextRole::Good, "runs"),
        (None, false) => style.paint(TextRole::Dim, "idle"),
    };
    let about = format!(
        "{} in process {}, {}, {}, since {}",
        process.command,
        process.pid,
        session.model,
        process.folder.display(),
        age(process.started_at, now),
    );
    let mut text = Styled::default();
    text.push_line(&styled![
        style.paint(TextRole::Strong, short(session.session_id.as_str())),
        "  ",
        state,
        "  ",
        style.paint(TextRole::Dim, about)
    ]);
    for question in &session.questions {
        text.push_line(&styled!["  ? ", question]);
    }
    for item in &session.work {
        text.push_line(&styled![
            "  ",
            style.pick("▶", ">"),
            " ",
            work_line(item),
            style.paint(TextRole::Dim, format!("  {}", item.id))
        ]);
    }
    text
}
