//! `allstop receipt`: prints the receipt of the last stop of a session, from the session's log. A receipt lists the
//! work that the stop has covered.

use allstop_log::read_session;
use allstop_terminal::OutputPriority;

use super::sessions::{open, resolve};
use crate::args::ReceiptArgs;
use crate::display::{RECEIPT_WIDTH_DEFAULT, render_full_receipt, render_receipt};
use crate::error::CliError;
use crate::host::ProcessHost;
use crate::shell_command::SameFlags;

/// Runs the command and returns its exit code.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn receipt(args: &ReceiptArgs, host: &ProcessHost) -> Result<u8, CliError> {
    let (log, _outputs) = open(&args.store, host).await?;
    let flags = SameFlags::of_store(&args.store);
    let id = resolve(&*log, &args.id, &flags).await?;
    let read = read_session(&*log, &id).await;
    let (state, owner) = read.map_err(|error| CliError::failure(error.to_string()))?;
    let is_under_way = owner.is_some() && state.open_turn().is_some();
    if let Some(turn) = state.turn_cut_off().filter(|_| !is_under_way) {
        // The last turn has no end in the log. An earlier receipt is not shown, because the user would mistake it for
        // the receipt of this turn.
        let message = format!(
            "the log has no end of turn {turn}: its process crashed, or the store failed. If the turn was stopped, its \
             receipt is lost"
        );
        let show = flags.command(&format!("sessions show {id} --full"));
        let hint =
            format!("`{show}` shows the earlier receipts, and the calls that may have completed");
        return Err(CliError::failure(message).hint(hint));
    }
    let Some(receipt) = state.last_receipt() else {
        let message = format!("session `{id}` has no receipt: none of its work was stopped");
        let show = flags.command(&format!("sessions show {id}"));
        let hint = format!("`{show}` shows how its turns ended");
        return Err(CliError::failure(message).hint(hint));
    };
    let stdout = host.output.stdout();
    if args.shown.json {
        let json = serde_json::to_string(&**receipt).unwrap_or_default();
        stdout.json(&json, OutputPriority::Last);
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
    Ok(0)
}
