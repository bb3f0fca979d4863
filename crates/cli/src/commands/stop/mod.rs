//! `allstop stop`: stops sessions in the processes that own them, and work that was left without one.

mod left_work;

use std::collections::HashSet;

use allstop_core::{CallId, Receipt, SessionId};
use futures::future::join_all;
use serde::Serialize;

use super::open_session::{AskedProcesses, ask_processes, given_id, meant, no_session};
use super::sessions::{open, resolve};
use crate::args::StopArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_full_receipt, render_receipt};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::remote::{RemoteExtent, RemoteStopParams, StoppedSession};
use crate::shell_command::SameFlags;
use crate::short_id::{LAST, short};
use crate::terminal::{OutputPriority, Styled, TextRole};
use left_work::LeftWork;

/// Result for one session, as `--json` gives it.
#[derive(Serialize)]
struct StopLine<'a> {
    schema: &'static str,
    session_id: &'a SessionId,
    receipt: &'a Receipt,
}

/// Runs the command and gives its exit code.
///
/// # Cancel safety
/// Dropping the future takes no stop back.
pub(crate) async fn stop(args: &StopArgs, host: &ProcessHost) -> Result<u8, CliError> {
    if args.id.is_none() && !args.all {
        let hint = "name it: `allstop stop last`, or an id that `allstop ps` lists; --all stops all of them";
        return Err(CliError::usage("no session is named").hint(hint));
    }
    let AskedProcesses {
        open: open_sessions,
        silent,
        pids,
    } = ask_processes().await?;
    let mut problems: Vec<String> = silent.iter().map(ToString::to_string).collect();
    let flags = SameFlags::of_store(&args.store);
    let told: HashSet<_> = open_sessions
        .iter()
        .map(|target| target.session.clone())
        .collect();
    let (chosen, left) = match args.id.as_deref() {
        None if args.extent == RemoteExtent::Turn => (open_sessions, LeftWork::default()),
        None => {
            let (log, _outputs) = open(&args.store, host).await?;
            let left = LeftWork::of_store(log, host.scopes(), &told, &pids).await?;
            let (left, in_the_way) = left;
            problems.extend(in_the_way);
            (open_sessions, left)
        }
        Some(given) => {
            let id = given_id(given, &open_sessions, &args.store, host).await?;
            match meant(open_sessions, &id)? {
                Some(target) => (vec![target], LeftWork::default()),
                None if given == LAST => {
                    return Err(no_session(&silent));
                }
                None => {
                    let (log, _outputs) = open(&args.store, host).await?;
                    let id = resolve(&*log, given, &flags).await?;
                    let left = if args.call.is_some() || args.extent == RemoteExtent::Turn {
                        Err(not_open(args, &id, &flags))
                    } else {
                        LeftWork::of_session(log, host.scopes(), id).await
                    };
                    match (left, silent.first()) {
                        (Ok(left), _) => (Vec::new(), left),
                        // It may be the one that has the session open.
                        (Err(_), Some(silent)) => {
                            return Err(CliError::failure(silent.to_string()));
                        }
                        (Err(error), None) => return Err(error),
                    }
                }
            }
        }
    };
    let by = format!("allstop stop in process {}", std::process::id());
    let params = |session: &SessionId| RemoteStopParams {
        session_id: session.clone(),
        extent: args.extent,
        call: args.call.as_deref().map(CallId::new),
        now: args.now,
        preview: args.preview,
        by: by.clone(),
    };
    // All at once: each has the same grace.
    let stopping = chosen.iter().map(async |target| {
        let params = params(&target.session);
        target.process.stop(&params, || {}).await
    });
    let (stopped, mut receipts) =
        tokio::join!(join_all(stopping), left.stop(args.preview, args.now, &by));
    for result in stopped {
        match result {
            Ok(stopped) => receipts.push(stopped),
            Err(error) => problems.push(error.to_string()),
        }
    }
    Ok(tell(args, host, &receipts, &problems))
}

/// Error for a stop of the turn, or of one of its calls, in a session in which no turn can run.
fn not_open(args: &StopArgs, id: &SessionId, flags: &SameFlags) -> CliError {
    let flag = if args.call.is_some() {
        "--call"
    } else {
        "--extent turn"
    };
    let message = format!("no process has the session `{id}` open: {flag} finds nothing to stop");
    let stop = flags.stop(id);
    CliError::usage(message).hint(format!("`{stop}` stops work that was left running"))
}

/// Shows receipts and problems. Returns the exit code.
fn tell(
    args: &StopArgs,
    host: &ProcessHost,
    receipts: &[StoppedSession],
    problems: &[String],
) -> u8 {
    let stdout = host.output.stdout();
    let style = host.terminal.style(stdout.is_terminal());
    let width = stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
    for StoppedSession { session, receipt } in receipts {
        if args.shown.json {
            let line = StopLine {
                schema: "allstop.stop/1",
                session_id: session,
                receipt,
            };
            let line = serde_json::to_string(&line).unwrap_or_default();
            stdout.json(&line, OutputPriority::Last);
            continue;
        }
        let mut text = Styled::default();
        if args.all || args.preview {
            let title = format!("session {}", short(session.as_str()));
            text.push_line(&style.paint(TextRole::Dim, title));
        }
        text.push(&if args.shown.full {
            render_full_receipt(receipt, style, width)
        } else {
            render_receipt(receipt, style, width)
        });
        stdout.lines(text, OutputPriority::Last);
    }
    if receipts.is_empty() && problems.is_empty() && !args.shown.json {
        let said = match args.extent {
            RemoteExtent::Turn => "nothing to stop: no session is open",
            _ => "nothing to stop: no session is open, and no work was left running",
        };
        stdout.lines(Styled::from(said), OutputPriority::Last);
    }
    let stderr = host.output.stderr();
    let style = host.terminal.style(stderr.is_terminal());
    for problem in problems {
        let said = style.failure(problem, None);
        stderr.lines(said, OutputPriority::Must);
    }
    let is_left = |stopped: &StoppedSession| {
        !stopped.receipt.quiet() && stopped.receipt.outcome().is_none() && !args.preview
    };
    u8::from(!problems.is_empty() || receipts.iter().any(is_left))
}
