//! The sentence of a receipt for people: the target of the stop, the requester, the duration, and the work that still
//! runs.

use std::fmt;

use super::{EndProof, ItemKind, ItemState, NothingToStop, Receipt, ReceiptItem};
use crate::counted::counted;
use crate::elapsed::milliseconds;
use crate::extent::Extent;
use crate::terminal_text::{escape, is_unsafe};

/// The sentence of the receipt, such as `Turn 7 stopped by you in 14.2 ms. Nothing is left running; verified.` It contains
/// no control characters.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&sentence(self), is_unsafe))
    }
}

/// Sentence with the target, the cause, the duration and the result of the stop.
fn sentence(receipt: &Receipt) -> String {
    let target = target(receipt);
    if let Some(outcome) = receipt.outcome() {
        return match outcome {
            NothingToStop::AlreadyEnded if receipt.may_miss().is_some() => {
                format!("Nothing to stop in {target}: already ended, as far as a search can find.")
            }
            NothingToStop::AlreadyEnded => format!("Nothing to stop in {target}: already ended."),
            NothingToStop::Ending => {
                format!(
                    "Too late to stop {target}: its result is decided, but its work may still run."
                )
            }
            NothingToStop::NotFound => format!("Nothing to stop: {target} was not found."),
        };
    }
    if receipt.is_preview() {
        let items = receipt.items().iter();
        let runs = items.filter(|item| !item.state.is_outside_extent()).count();
        return match runs {
            0 => format!("Would stop nothing of {target}."),
            _ => format!(
                "Would stop {target}: {}.",
                counted(runs as u64, "piece of work runs", "pieces of work run")
            ),
        };
    }
    let target = if target.starts_with("bg_") {
        target
    } else {
        capitalised(&target)
    };
    if receipt.is_of_crash() {
        let lost = unknown_outcomes(receipt.items());
        return format!(
            "{target} was cut off, because its process crashed or the store failed.{lost}"
        );
    }
    let stopped = receipt.cause().stopped_by();
    if !receipt.quiet() {
        return format!("{target} {stopped}, but {}.", left(receipt.items()));
    }
    let after = receipt.quiet_after_ms();
    let after = after.map_or(String::new(), |ms| {
        format!(" in {}", milliseconds(ms.as_f64()))
    });
    // The duration comes before the reason. In `because the run has ended in 2 ms`, a reader would take the duration of
    // the stop for the duration of the run.
    let said = match stopped.strip_prefix("stopped because ") {
        Some(why) => format!("stopped{after} because {why}"),
        None => format!("{stopped}{after}"),
    };
    format!("{target} {said}. {}", verdict(receipt.items()))
}

/// True if the stop covered the work, but did not verifiably end it.
fn is_left(state: &ItemState) -> bool {
    state.breaks_quiet() && !state.is_outside_extent()
}

/// Counts the work that a stop did not end, in the words of its items: `2 of 5 still run, 1 may still run`.
fn left(items: &[ReceiptItem]) -> String {
    let all = items
        .iter()
        .filter(|item| !item.state.is_outside_extent())
        .count();
    let count = |is_it: fn(&ItemState) -> bool| {
        let left = items.iter().filter(|item| is_left(&item.state));
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
    let outside = items
        .iter()
        .filter(|item| item.state.is_outside_extent())
        .count();
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
        (Some(_), "run") => "the run".to_owned(),
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

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}
