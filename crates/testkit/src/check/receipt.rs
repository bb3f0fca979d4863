//! Receipts are true: what they call ended has ended, and what ran is in them (invariant 3).

use allstop_agent::AGENT_TOOL;
use allstop_core::receipt::{EndMethod, ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::record::{SessionRecord as R, StartedCallKind};
use allstop_core::{Effect, Extent, Receipt};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, ObservedStop, RunObservation, StopAnswer, WitnessedLife};

pub(super) const TRUE: CheckerRule = CheckerRule {
    name: "receipt_true",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::FalseReceipt,
    needs: &[EvidenceKind::Run],
    check: all_true,
};

pub(super) const ONE: CheckerRule = CheckerRule {
    name: "one_receipt",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    needs: &[EvidenceKind::Run],
    check: one_stop_one_receipt,
};

pub(super) const EXTENT: CheckerRule = CheckerRule {
    name: "extent",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::WrongExtent,
    needs: &[EvidenceKind::Witness],
    check: nothing_outside_the_extent,
};

/// True if an item can be about this piece of life.
fn is_about(item: &ReceiptItem, lived: &WitnessedLife) -> bool {
    item.kind == lived.kind
        && match lived.kind {
            ItemKind::ToolCall | ItemKind::Background => item.id == lived.id,
            // What a question is about is in its call's id; receipts name the question itself.
            ItemKind::ModelCall | ItemKind::Permission => true,
            _ => item.name == lived.id,
        }
}

/// True if a stop of this extent covers this. The calls say which processes are theirs.
pub(super) fn covers(asked: &ObservedStop, receipt: &Receipt, lived: &WitnessedLife) -> bool {
    match asked.extent {
        Extent::Subtree => false,
        Extent::Call => lived.kind == ItemKind::ToolCall && lived.id == receipt.request().target,
        Extent::Turn => lived.is_foreground(),
        _ => true,
    }
}

pub(super) fn answers(
    observation: &RunObservation,
) -> impl Iterator<Item = (&ObservedStop, &StopAnswer)> {
    observation
        .all_stops()
        .filter_map(|asked| Some((asked, asked.answer.as_ref()?)))
        .filter(|(_, answer)| answer.receipt.outcome().is_none())
}

/// True if an item says that its work runs or may run: by its word, and not by what the engine makes of it.
pub(super) fn says_running(item: &ReceiptItem) -> bool {
    matches!(
        item.state.as_str(),
        "still_running" | "unreachable" | "refused"
    )
}

/// The items of what the stop covers.
pub(super) fn in_extent(receipt: &Receipt) -> impl Iterator<Item = &ReceiptItem> {
    let outside = ItemState::StillRunning {
        why: NotStoppedReason::OutsideExtent,
    };
    let items = receipt.items().iter();
    items.filter(move |item| item.state != outside)
}

fn all_true(observation: &RunObservation) -> Result<(), String> {
    for (asked, answer) in answers(observation) {
        let receipt = &answer.receipt;
        if receipt.quiet() == in_extent(receipt).any(says_running) {
            let not = if receipt.quiet() { "" } else { "not " };
            return Err(format!(
                "the receipt says {not}quiet, and its items the contrary"
            ));
        }
        let covered = observation.lived.iter();
        // A session goes on: what began after the stop is the next message's.
        let goes_on = observation.session.is_some();
        let covered = covered.filter(|lived| !goes_on || lived.began < asked.accepted);
        for lived in covered.filter(|lived| covers(asked, receipt, lived)) {
            let item = receipt.items().iter().find(|item| is_about(item, lived));
            let name = format!("{} {}", lived.kind.as_str(), lived.id);
            if lived.was_alive(answer.order) {
                if receipt.quiet() {
                    return Err(format!("the receipt says quiet while {name} runs"));
                }
                if let Some(item) = item
                    && !says_running(item)
                {
                    let said = item.state.as_str();
                    return Err(format!("the receipt says {said} of {name}, which runs"));
                }
            }
            // What a sub-agent's model is asked belongs to its call.
            let is_sub_agents = lived.kind == ItemKind::ModelCall
                && receipt.items().iter().any(|item| &*item.name == AGENT_TOOL);
            if lived.was_alive(asked.accepted)
                && item.is_none()
                && lived.kind != ItemKind::Process
                && !is_sub_agents
            {
                let named = receipt.items().iter();
                let named = named.map(|item| format!("{} {}", item.kind.as_str(), item.id));
                return Err(format!(
                    "the receipt does not name {name}, which ran at the stop: {}",
                    named.collect::<Vec<_>>().join(", ")
                ));
            }
        }
        for item in receipt.items() {
            says_how(item, effect_of(observation, item))?;
        }
    }
    for turn in observation.turns.iter().flatten() {
        let quiet = turn.receipt.as_ref().is_some_and(|receipt| receipt.quiet());
        let mut running = observation
            .lived
            .iter()
            .filter(|lived| lived.is_foreground());
        if quiet && let Some(lived) = running.find(|lived| lived.was_alive(observation.over)) {
            let name = format!("{} {}", lived.kind.as_str(), lived.id);
            return Err(format!("turn {} says quiet while {name} runs", turn.turn));
        }
    }
    Ok(())
}

/// Effect that a repeat of a call would have, as its start says.
fn effect_of(observation: &RunObservation, item: &ReceiptItem) -> Option<Effect> {
    observation.records.iter().find_map(|record| match record {
        R::CallStarted { call, .. } if call.id.as_str() == &*item.id => match call.kind {
            StartedCallKind::Tool { effect, .. } => Some(effect),
            StartedCallKind::Model { .. } => None,
        },
        _ => None,
    })
}

/// An item that is stopped says how that is known, and one whose effect is unknown says what a repeat would do.
fn says_how(item: &ReceiptItem, effect: Option<Effect>) -> Result<(), String> {
    match &item.state {
        ItemState::Stopped { evidence, .. }
            if evidence.proof().is_none() && evidence.checkpoint().is_none() =>
        {
            Err(format!(
                "{} is stopped and nothing says how that is known",
                item.name
            ))
        }
        // What became of a process is known; what a dropped future had asked of the world is not.
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

/// Stops that meet get one receipt; what has ended answers with the id of the stop that ended it.
fn one_stop_one_receipt(observation: &RunObservation) -> Result<(), String> {
    let mut of_turn = observation
        .stops
        .iter()
        .filter(|asked| asked.extent == Extent::Turn);
    let (Some(first), Some(second)) = (of_turn.next(), of_turn.next()) else {
        return Ok(());
    };
    let (Some(first), Some(second)) = (&first.answer, &second.answer) else {
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

/// A stop of a turn leaves background work alone, and names it.
fn nothing_outside_the_extent(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let narrow = observation.caller_gone.is_none()
        && observation.deadline.is_none()
        && observation
            .stops
            .iter()
            .all(|asked| matches!(asked.extent, Extent::Turn | Extent::Call));
    if !narrow {
        return Ok(());
    }
    for lived in observation
        .lived
        .iter()
        .filter(|lived| lived.kind == ItemKind::Background)
    {
        if !lived.was_alive(observation.over) {
            let ends_by_itself = undisturbed.lived.iter().any(|other| {
                other.kind == ItemKind::Background && !other.was_alive(undisturbed.over)
            });
            if !ends_by_itself {
                return Err(format!(
                    "background work {} ended with a stop of the turn",
                    lived.id
                ));
            }
        }
        let names_it = |receipt: &Receipt| {
            let mut items = receipt.items().iter();
            items.any(|item| item.kind == ItemKind::Background)
        };
        let since = observation.disturbance().and_then(|stop| stop.accepted);
        for turn in observation.turns.iter().flatten() {
            if let (Some(receipt), Some(since)) = (&turn.receipt, since)
                && lived.was_alive(since)
                && lived.was_alive(observation.over)
                && !names_it(receipt)
            {
                return Err(format!(
                    "background work {} runs on and turn {} does not name it",
                    lived.id, turn.turn
                ));
            }
        }
        for (asked, answer) in answers(observation) {
            let named = names_it(&answer.receipt);
            let alive = lived.was_alive(asked.accepted) && lived.was_alive(answer.order);
            if asked.extent == Extent::Turn && alive && !named {
                return Err(format!(
                    "background work {} runs on and is not named",
                    lived.id
                ));
            }
        }
    }
    Ok(())
}
