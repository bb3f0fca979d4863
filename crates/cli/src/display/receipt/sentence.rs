//! The first sentence of a receipt: the target of the stop, the requester, the duration, and whether work still runs.

use allstop_core::receipt::{EndProof, ItemKind, ItemState, NothingToStop, ReceiptItem};
use allstop_core::turn::CRASH;
use allstop_core::{Cause, CauseKind, Extent, Receipt};

use super::super::labels;
use super::left::{is_left, is_outside};

/// Sentence with the target, the cause, the duration and the result of the stop.
pub(super) fn sentence(receipt: &Receipt) -> String {
    let target = target(receipt);
    if let Some(outcome) = receipt.outcome() {
        return match outcome {
            NothingToStop::AlreadyEnded => format!("Nothing to stop in {target}: already ended."),
            NothingToStop::Ending => {
                format!(
                    "Too late to stop {target}: its result is decided, but its work may still run."
                )
            }
            NothingToStop::NotFound => format!("Nothing to stop: {target} not found."),
        };
    }
    if receipt.is_preview() {
        let runs = !receipt.items().iter().all(is_outside);
        return if runs {
            format!("Would stop {target}:")
        } else {
            format!("Would stop nothing of {target}.")
        };
    }
    let target = if target.starts_with("bg_") {
        target
    } else {
        capitalised(&target)
    };
    if is_of_crash(receipt) {
        let lost = unknown_outcomes(receipt.items());
        return format!(
            "{target} was cut off, because its process crashed or the store failed.{lost}"
        );
    }
    let stopped = stopped_by(receipt.cause());
    if !receipt.quiet() {
        return format!("{target} {stopped}, but {}.", left(receipt.items()));
    }
    let after = receipt.quiet_after_ms();
    let after = after.map_or(String::new(), |ms| {
        format!(" in {}", labels::milliseconds(ms.as_f64()))
    });
    // The duration comes before the reason. In `because the run has ended in 2 ms`, a reader would take the duration of
    // the stop for the duration of the run.
    let said = match stopped.strip_prefix("stopped because ") {
        Some(why) => format!("stopped{after} because {why}"),
        None => format!("{stopped}{after}"),
    };
    format!("{target} {said}. {}", verdict(receipt.items()))
}

/// Counts the work that a stop did not end, in the words of its items: `2 of 5 still run, 1 may still run`.
fn left(items: &[ReceiptItem]) -> String {
    let all = items.iter().filter(|item| !is_outside(item)).count();
    let count = |is_it: fn(&ItemState) -> bool| {
        let left = items.iter().filter(|item| is_left(item));
        left.filter(|item| is_it(&item.state)).count()
    };
    let still = count(|state| matches!(state, ItemState::StillRunning { .. }));
    let may = count(|state| matches!(state, ItemState::Unreachable { .. }));
    let refused = count(|state| matches!(state, ItemState::Refused { .. }));
    let runs = if still == 1 {
        "still runs"
    } else {
        "still run"
    };
    let parts = [
        (still, runs),
        (may, "may still run"),
        (refused, "refused to stop"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if let Some(first) = parts.first_mut() {
        *first = first.replacen(' ', &format!(" of {all} "), 1);
    }
    parts.join(", ")
}

fn verdict(items: &[ReceiptItem]) -> String {
    let outside = items.iter().filter(|item| is_outside(item)).count();
    let of_it = match (items.len(), outside) {
        (0, _) => return "Nothing was running.".to_owned(),
        (_, 0) => "",
        _ => " of it",
    };
    let evidence = if items.iter().any(is_searched) {
        "as far as a search can find"
    } else {
        "verified"
    };
    let unknown = unknown_outcomes(items);
    format!("Nothing{of_it} is left running; {evidence}.{unknown}")
}

fn unknown_outcomes(items: &[ReceiptItem]) -> String {
    let unknown = items
        .iter()
        .filter(|item| matches!(item.state, ItemState::Unknown { .. }))
        .count();
    match unknown {
        0 => String::new(),
        1 => " One outcome is unknown.".to_owned(),
        _ => format!(" {unknown} outcomes are unknown."),
    }
}

/// True if recovery has made the receipt after a crash: no stop was carried out, so nothing was verified.
pub(super) fn is_of_crash(receipt: &Receipt) -> bool {
    receipt.cause().kind == CauseKind::Failure && receipt.cause().detail.as_deref() == Some(CRASH)
}

/// True if the only proof of the item's end is a search that found no more of its processes. Some processes can escape
/// that search.
fn is_searched(item: &ReceiptItem) -> bool {
    matches!(&item.state, ItemState::Stopped { evidence, .. }
        if evidence.proof() == Some(EndProof::ProcessGroupEmpty))
}

/// Name of the target of the stop, such as `turn 7 and its background work`.
fn target(receipt: &Receipt) -> String {
    let request = receipt.request();
    let mut parts = request.target.rsplit('/');
    let (last, before) = (parts.next().unwrap_or_default(), parts.next());
    let named = match (before, last) {
        // The id of a sub-agent's call is a path of call ids with slashes, so the rest of the target is one id.
        _ if let Some((_, id)) = request.target.split_once("/call/") => format!("call {id}"),
        (Some("turn"), number) => format!("turn {number}"),
        (_, id) if id.starts_with("bg_") => id.to_owned(),
        (Some("message"), _) if request.extent == Extent::Subtree => {
            "the work of the message".to_owned()
        }
        (Some("message"), _) => "the turn of your message".to_owned(),
        (_, "compaction") => "the compaction".to_owned(),
        (Some("task"), id) => format!("task {id}"),
        (Some("session"), _) => "the session".to_owned(),
        _ => request.target.to_string(),
    };
    // If no turn runs, the target contains the turn that ended last. The items show if a turn was stopped.
    let mut items = receipt.items().iter();
    let has_turn =
        receipt.items().is_empty() || items.any(|item| item.kind != ItemKind::Background);
    match request.extent {
        Extent::Process => "everything".to_owned(),
        Extent::TurnAndBackground if !has_turn => "the background work".to_owned(),
        Extent::TurnAndBackground if before == Some("session") => {
            "the turn and the background work".to_owned()
        }
        Extent::TurnAndBackground => format!("{named} and the background work"),
        Extent::Turn if before == Some("session") => "the turn".to_owned(),
        _ => named,
    }
}

/// Describes the cause of the stop, as in `stopped by you (Ctrl-C)`.
pub(crate) fn stopped_by(cause: &Cause) -> String {
    let detail = cause.detail.as_deref();
    let because = |otherwise: &str| format!("stopped because {}", detail.unwrap_or(otherwise));
    let in_brackets = detail.map_or(String::new(), |detail| format!(" ({detail})"));
    match cause.kind {
        CauseKind::User => {
            let who = match cause.by.as_deref() {
                None | Some("cli") => "you",
                Some(by) => by,
            };
            match detail {
                Some("ctrl-c") => format!("stopped by {who} (Ctrl-C)"),
                _ => format!("stopped by {who}{in_brackets}"),
            }
        }
        CauseKind::Superseded => "stopped by your next message".to_owned(),
        CauseKind::Deadline => format!("stopped by a time limit{in_brackets}"),
        CauseKind::Inactivity => format!("stopped for inactivity{in_brackets}"),
        CauseKind::Budget => format!("stopped by a limit{in_brackets}"),
        CauseKind::Guardrail => format!("stopped by a guardrail{in_brackets}"),
        CauseKind::Parent => because("its parent was stopped"),
        CauseKind::Shutdown => match detail {
            Some(signal) if signal.starts_with("sig") => {
                format!("stopped by {}", signal.to_uppercase())
            }
            _ => because("the process ends"),
        },
        CauseKind::LeaseLost => because("another process took it over"),
        CauseKind::Disconnect => because("its client disconnected"),
        CauseKind::Failure => format!("stopped by a failure{in_brackets}"),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}
