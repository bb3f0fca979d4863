//! `allstop stop`: stops sessions in the processes that own them, and work that was left without one.

mod chosen_work;
mod left_work;

use allstop_core::{CallId, Receipt, SessionId};
use futures::future::join_all;
use serde::Serialize;

use crate::args::StopArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_full_receipt, render_receipt};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::remote::{RemoteExtent, RemoteStopParams, StoppedSession};
use crate::short_id::short;
use crate::terminal::{OutputPriority, Styled, TextRole};
use chosen_work::ChosenWork;

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
    let ChosenWork {
        targets,
        left,
        mut problems,
    } = ChosenWork::of(args, host).await?;
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
    let stopping = targets.iter().map(async |target| {
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
