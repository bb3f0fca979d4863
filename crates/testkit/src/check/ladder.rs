//! The ladder is climbed to its end: the engine hears, and nobody gives up before what can be ended has ended.

use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::{ItemKind, ItemState, ReceiptItem, Why};
use allstop_scope::FORCE_MAX;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const ACKNOWLEDGED: Checker = Checker {
    name: "acknowledged",
    invariant: Invariant::NoSelfAcknowledgement,
    class: FailureClass::SignalMissesLeaf,
    check: engine_has_acknowledged,
};

pub(super) const PATIENT: Checker = Checker {
    name: "patient",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::WrongExtent,
    check: nobody_gives_up_early,
};

/// The receipts of the stops that were asked for and found something to do, with how long each took, and those of
/// turns that were stopped from outside.
fn receipts(aftermath: &Aftermath) -> impl Iterator<Item = (&Receipt, Duration)> {
    let asked = aftermath.asked.iter().filter_map(|asked| {
        let answer = asked.answer.as_ref()?;
        Some((&*answer.receipt, answer.at.saturating_sub(asked.at)))
    });
    let since = aftermath.disturbance().map(|stop| stop.at);
    let turns = aftermath.turns.iter().flatten().filter_map(move |turn| {
        let took = aftermath.over_at.saturating_sub(since?);
        Some((&**turn.receipt.as_ref()?, took))
    });
    asked
        .chain(turns)
        .filter(|(receipt, _)| receipt.outcome().is_none())
}

/// Every engine that a stop covers has acknowledged it by the end of the ladder.
fn engine_has_acknowledged(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let deaf = |item: &&ReceiptItem| {
        item.kind == ItemKind::Engine
            || item.state
                == ItemState::StillRunning {
                    why: Why::NotAcknowledged,
                }
    };
    for (receipt, _) in receipts(aftermath) {
        if let Some(item) = receipt.items().iter().find(deaf) {
            return Err(format!("{} has never heard the stop", item.name));
        }
    }
    Ok(())
}

/// Only after force has had its time is something of the extent called running.
fn nobody_gives_up_early(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let runs = |item: &&ReceiptItem| {
        matches!(&item.state, ItemState::StillRunning { why }
            if !matches!(why, Why::OutsideExtent | Why::WatcherGone))
    };
    for (receipt, took) in receipts(aftermath) {
        if took < FORCE_MAX
            && let Some(item) = receipt.items().iter().find(runs)
        {
            return Err(format!("after {took:?} {} was let run", item.name));
        }
    }
    Ok(())
}
