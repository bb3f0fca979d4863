//! Receipts of stops are true: if a receipt reports work as ended, the work has ended, and the receipt contains all
//! work that ran.

use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::record::{SessionRecord as R, StartedCallKind};
use allstop_core::{Effect, Extent, Receipt};
use allstop_tools::names;

use crate::observe::{ObservedStop, ObservedWork, RunObservation};

/// True if an item may describe this piece of work.
fn is_about(item: &ReceiptItem, work: &ObservedWork) -> bool {
    item.kind == work.kind
        && match work.kind {
            ItemKind::ToolCall | ItemKind::Background => item.id == work.id,
            // The work of a permission question is observed under the id of the tool call that needs the permission. A
            // receipt contains the id of the question itself.
            ItemKind::ModelCall | ItemKind::Permission => true,
            _ => item.name == work.id,
        }
}

/// True if a stop of this extent (part of the work) covers this work. The processes of a call count as part of the
/// call.
fn covers(asked: &ObservedStop, receipt: &Receipt, work: &ObservedWork) -> bool {
    match asked.extent {
        Extent::Subtree => false,
        Extent::Call => work.kind == ItemKind::ToolCall && work.id == receipt.request().target,
        Extent::Turn => work.is_foreground(),
        _ => true,
    }
}

/// All work that a stop covers. A session continues after a stop, so work that began after the stop belongs to the next
/// message, and is not covered.
pub(super) fn covered<'a>(
    run: &'a RunObservation,
    asked: &ObservedStop,
    receipt: &Receipt,
) -> impl Iterator<Item = &'a ObservedWork> {
    let goes_on = run.session.is_some();
    run.notes.work.iter().filter(move |work| {
        covers(asked, receipt, work) && (!goes_on || work.began < asked.accepted)
    })
}

/// True if an item reports that its work runs or may run. This function reads only the name of the state, because it
/// does not rely on the engine's own evaluation of the state.
pub(super) fn reports_running(item: &ReceiptItem) -> bool {
    matches!(
        item.state.as_str(),
        "still_running" | "unreachable" | "refused"
    )
}

/// The items inside the extent of the stop.
pub(super) fn in_extent(receipt: &Receipt) -> impl Iterator<Item = &ReceiptItem> {
    let outside = ItemState::StillRunning {
        why: NotStoppedReason::OutsideExtent,
    };
    let items = receipt.items().iter();
    items.filter(move |item| item.state != outside)
}

pub(super) fn all_true(run: &RunObservation) -> Result<(), String> {
    for (asked, answer) in run.answers() {
        let receipt = &answer.receipt;
        if receipt.quiet() == in_extent(receipt).any(reports_running) {
            let not = if receipt.quiet() { "" } else { "not " };
            return Err(format!(
                "the receipt says {not}quiet, and its items the contrary"
            ));
        }
        for work in covered(run, asked, receipt) {
            let item = receipt.items().iter().find(|item| is_about(item, work));
            if work.was_alive(answer.order) {
                if receipt.quiet() {
                    return Err(format!("the receipt says quiet while {work} runs"));
                }
                if let Some(item) = item
                    && !reports_running(item)
                {
                    let said = item.state.as_str();
                    return Err(format!("the receipt says {said} of {work}, which runs"));
                }
            }
            // The model calls of a sub-agent belong to the tool call that started the sub-agent.
            let is_sub_agents = work.kind == ItemKind::ModelCall
                && receipt
                    .items()
                    .iter()
                    .any(|item| &*item.name == names::AGENT);
            if work.was_alive(asked.accepted)
                && item.is_none()
                && work.kind != ItemKind::Process
                && !is_sub_agents
            {
                let named = receipt.items().iter();
                let named = named.map(|item| format!("{} {}", item.kind.as_str(), item.id));
                return Err(format!(
                    "the receipt does not name {work}, which ran at the stop: {}",
                    named.collect::<Vec<_>>().join(", ")
                ));
            }
        }
        for item in receipt.items() {
            check_evidence(item, effect_of(run, item))?;
        }
    }
    for turn in run.turns.iter().flatten() {
        let quiet = turn.receipt.as_ref().is_some_and(|receipt| receipt.quiet());
        let mut running = run.notes.work.iter().filter(|work| work.is_foreground());
        if quiet && let Some(work) = running.find(|work| work.was_alive(run.over)) {
            return Err(format!("turn {} says quiet while {work} runs", turn.turn));
        }
    }
    Ok(())
}

/// Effect that a repeat of a call would have, according to its start record.
fn effect_of(run: &RunObservation, item: &ReceiptItem) -> Option<Effect> {
    run.records.iter().find_map(|record| match record {
        R::CallStarted { call, .. } if call.id.as_str() == &*item.id => match call.kind {
            StartedCallKind::Tool { effect, .. } => Some(effect),
            StartedCallKind::Model { .. } => None,
        },
        _ => None,
    })
}

/// An item in the state `stopped` has evidence of its end. An item whose outcome is unknown names the effect that a
/// repeat of the call would have.
fn check_evidence(item: &ReceiptItem, effect: Option<Effect>) -> Result<(), String> {
    match &item.state {
        ItemState::Stopped { evidence, .. }
            if evidence.proof().is_none() && evidence.checkpoint().is_none() =>
        {
            Err(format!(
                "{} is stopped and nothing says how that is known",
                item.name
            ))
        }
        // The end of a process can be verified. The effect of a request whose future was dropped cannot be verified.
        ItemState::Stopped {
            how: EndMethod::Dropped,
            ..
        } if item.containment.is_none() && effect.is_some_and(|effect| !effect.may_repeat()) => {
            Err(format!(
                "{} was dropped and is irreversible: nobody knows whether it has happened",
                item.name
            ))
        }
        ItemState::Unknown { .. } if item.effect.is_none() => Err(format!(
            "{} is unknown and its effect is not named",
            item.name
        )),
        _ => Ok(()),
    }
}

/// Concurrent stops of the same target get the same receipt. A stop of a target that has already ended gets the id of
/// the stop that ended the target.
pub(super) fn one_stop_one_receipt(run: &RunObservation) -> Result<(), String> {
    let mut of_turn = run
        .stops
        .iter()
        .filter(|asked| asked.extent == Extent::Turn);
    let mut answer = || of_turn.next()?.answer.as_ref();
    let (Some(first), Some(second)) = (answer(), answer()) else {
        return Ok(());
    };
    let of_the_same = first.receipt.request().target == second.receipt.request().target;
    if first.receipt.outcome().is_some() || !of_the_same {
        return Ok(());
    }
    if first.receipt.stop_id() != second.receipt.stop_id() {
        return Err("a second stop of the same has another id than the first".to_owned());
    }
    if second.receipt.outcome().is_none() && first.receipt != second.receipt {
        return Err("two who asked for the same stop got different receipts".to_owned());
    }
    Ok(())
}

/// A stop of a turn does not end background work, and the receipt of the stop names this work.
pub(super) fn nothing_outside_the_extent(run: &RunObservation) -> Result<(), String> {
    let is_narrow = |asked: &ObservedStop| matches!(asked.extent, Extent::Turn | Extent::Call);
    if run.caller_gone.is_some() || run.deadline.is_some() || !run.stops.iter().all(is_narrow) {
        return Ok(());
    }
    let is_background = |work: &&ObservedWork| work.kind == ItemKind::Background;
    for work in run.notes.work.iter().filter(is_background) {
        let whole = run.undisturbed();
        let mut others = whole.notes.work.iter().filter(is_background);
        if !work.was_alive(run.over) && others.all(|other| other.was_alive(whole.over)) {
            return Err(format!(
                "background work {} ended with a stop of the turn",
                work.id
            ));
        }
        let names_it = |receipt: &Receipt| {
            let mut items = receipt.items().iter();
            items.any(|item| item.kind == ItemKind::Background)
        };
        let since = run.disturbance().and_then(|stop| stop.accepted);
        for turn in run.turns.iter().flatten() {
            if let (Some(receipt), Some(since)) = (&turn.receipt, since)
                && work.was_alive(since)
                && work.was_alive(run.over)
                && !names_it(receipt)
            {
                return Err(format!(
                    "background work {} runs on and turn {} does not name it",
                    work.id, turn.turn
                ));
            }
        }
        for (asked, answer) in run.answers() {
            let named = names_it(&answer.receipt);
            let alive = work.was_alive(asked.accepted) && work.was_alive(answer.order);
            if asked.extent == Extent::Turn && alive && !named {
                return Err(format!(
                    "background work {} runs on and is not named",
                    work.id
                ));
            }
        }
    }
    Ok(())
}
