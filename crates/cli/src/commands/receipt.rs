//! `allstop receipt`: prints the receipt of the last stop of a session, from the session's log. A receipt lists the
//! work that the stop has covered.

use allstop_core::turn::LostTurn;
use allstop_log::read_session;
use allstop_terminal::OutputPriority;

use super::dying::{background_markers, dying_processes_gone};
use super::sessions::{open, resolve};
use crate::args::ReceiptArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, describe_lost, render_full_receipt, render_receipt};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::json_document::print_receipt;
use crate::shell_command::SameFlags;

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn receipt(args: &ReceiptArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let log = open(&args.store, host).await?;
    let flags = SameFlags::of_store(&args.store);
    let id = resolve(&*log, &args.id, &flags).await?;
    let read = read_session(&*log, &id).await;
    let (state, owner) = read.map_err(|error| CliError::failure(error.to_string()))?;
    let is_under_way = owner.is_some() && state.open_turn().is_some();
    // The next open of the session writes this receipt to the log.
    let after_crash = (!is_under_way).then(|| state.crash_receipt()).flatten();
    let after_crash = after_crash.as_ref();
    if after_crash.is_some() {
        let kept = background_markers(&state, &[]);
        let gone = dying_processes_gone(std::slice::from_ref(&id), kept, host).await;
        gone.map_err(|left| {
            left.hint(format!(
                "end them: `{}`",
                flags.command(&format!("stop {id}"))
            ))
        })?;
    }
    let last = state.last_receipt().map(AsRef::as_ref);
    let Some(receipt) = after_crash.or(last) else {
        let message = format!("session `{id}` has no receipt: none of its work was stopped");
        let show = flags.command(&format!("sessions show {id}"));
        let hint = format!("`{show}` shows how its turns ended");
        return Err(CliError::failure(message).hint(hint));
    };
    let stdout = host.output.stdout();
    if args.shown.json {
        print_receipt(receipt, stdout);
        return Ok(0);
    }
    let style = host.terminal.style(stdout.is_terminal());
    let width = stdout.columns().unwrap_or(RECEIPT_WIDTH_DEFAULT);
    let text = if args.shown.full {
        render_full_receipt(receipt, style, width)
    } else {
        render_receipt(receipt, style, width)
    };
    stdout.lines(text, OutputPriority::Last);
    let target = &receipt.request().target;
    let is_of_receipt = |lost: &&LostTurn| target.ends_with(&format!("/turn/{}", lost.turn));
    if after_crash.is_some() {
        if let Some(lost) = state.lost_calls_of_open_turn() {
            stdout.lines(describe_lost(&lost, false, style), OutputPriority::Last);
        }
        return Ok(0);
    }
    let conversation = state.conversation();
    for lost in conversation.all_lost().filter(is_of_receipt) {
        let is_reported = !conversation.lost.contains(lost);
        let text = describe_lost(lost, is_reported, style);
        stdout.lines(text, OutputPriority::Last);
    }
    Ok(0)
}
