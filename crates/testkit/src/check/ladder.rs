//! The ladder is climbed to its end (invariants 1 and 4): the engine hears, and all that can be ended has ended.

use std::time::Duration;

use allstop_core::Receipt;
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_scope::FORCE_MAX;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const ACKNOWLEDGED: CheckerRule = CheckerRule {
    name: "acknowledged",
    invariant: Invariant::NoSelfAcknowledgement,
    class: FailureClass::SignalMissesLeaf,
    needs: &[EvidenceKind::Run],
    check: engine_has_acknowledged,
};

pub(super) const PATIENT: CheckerRule = CheckerRule {
    name: "patient",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::WrongExtent,
    needs: &[EvidenceKind::Run],
    check: nobody_gives_up_early,
};

/// The receipts of the stops that were asked for and found something to do, with how long each took, and those of
/// turns that were stopped from outside.
fn receipts(observation: &RunObservation) -> impl Iterator<Item = (&Receipt, Duration)> {
    let asked = observation.stops.iter().filter_map(|asked| {
        let answer = asked.answer.as_ref()?;
        Some((&*answer.receipt, answer.at.saturating_sub(asked.at)))
    });
    let since = observation.disturbance().map(|stop| stop.at);
    let turns = observation.turns.iter().flatten().filter_map(move |turn| {
        let took = observation.over_at.saturating_sub(since?);
        Some((&**turn.receipt.as_ref()?, took))
    });
    asked
        .chain(turns)
        .filter(|(receipt, _)| receipt.outcome().is_none())
}

/// Every engine that a stop covers has acknowledged it by the end of the ladder.
fn engine_has_acknowledged(observation: &RunObservation) -> Result<(), String> {
    let deaf = |item: &&ReceiptItem| {
        item.kind == ItemKind::Engine
            || item.state
                == ItemState::StillRunning {
                    why: NotStoppedReason::NotAcknowledged,
                }
    };
    for (receipt, _) in receipts(observation) {
        if let Some(item) = receipt.items().iter().find(deaf) {
            return Err(format!("{} has never heard the stop", item.name));
        }
    }
    Ok(())
}

/// Only after force has had its time is something of the extent called running.
fn nobody_gives_up_early(observation: &RunObservation) -> Result<(), String> {
    let runs = |item: &&ReceiptItem| {
        matches!(&item.state, ItemState::StillRunning { why }
            if !matches!(why, NotStoppedReason::OutsideExtent | NotStoppedReason::WatcherGone))
    };
    for (receipt, took) in receipts(observation) {
        if took < FORCE_MAX
            && let Some(item) = receipt.items().iter().find(runs)
        {
            return Err(format!("after {took:?} {} was let run", item.name));
        }
    }
    Ok(())
}
