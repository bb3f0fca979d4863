//! A stopped message is not answered (invariant 12), and nothing begins where all was stopped (invariant 5).

use allstop_core::receipt::ItemKind;
use allstop_core::{Extent, MessageId, TurnNumber};

use super::superseded::was_committed;
use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const STAYS: CheckerRule = CheckerRule {
    name: "stopped_message",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::LostStop,
    needs: &[EvidenceKind::Session],
    check: stays_stopped,
};

pub(super) const BARRIER: CheckerRule = CheckerRule {
    name: "closed_barrier",
    invariant: Invariant::NoStartBehindBarrier,
    class: FailureClass::WorkAfterStop,
    needs: &[EvidenceKind::Session],
    check: nothing_begins,
};

/// The message whose turn a receipt names is not answered, and its cause is one that was given.
fn stays_stopped(observation: &RunObservation) -> Result<(), String> {
    let Some(session) = &observation.session else {
        return Ok(());
    };
    for asked in &observation.stops {
        let Some(answer) = &asked.answer else {
            continue;
        };
        let target = &answer.receipt.request().target;
        if asked.extent != Extent::Turn || answer.receipt.outcome().is_some() {
            continue;
        }
        let turn = target.rsplit_once("/turn/");
        let turn = turn.and_then(|(_, turn)| turn.parse().ok()).map(TurnNumber);
        let message = target.rsplit_once("/message/").map(|(_, id)| id);
        for sent in session.taken() {
            let Some((_, outcome)) = &sent.outcome else {
                continue;
            };
            let is_it = turn.is_some() && outcome.turn == turn
                || message.is_some() && sent.id.as_ref().map(MessageId::as_str) == message;
            if !is_it {
                continue;
            }
            let committed = |turn| was_committed(observation, turn, asked.point);
            if outcome.is_completed() && !outcome.turn.is_some_and(committed) {
                return Err(format!(
                    "{target} was stopped ({}) and {:?} was answered",
                    asked.cause, sent.text
                ));
            }
            if let Some(cause) = &outcome.cause {
                let mut given = observation.stops.iter().map(|asked| asked.cause.kind);
                let superseded = allstop_core::CauseKind::Superseded;
                if cause.kind != superseded && !given.any(|kind| kind == cause.kind) {
                    return Err(format!("{target} ended with {cause}, which nobody said"));
                }
            }
        }
    }
    Ok(())
}

/// After a stop of the session or the process nothing begins in it, until it is opened again.
fn nothing_begins(observation: &RunObservation) -> Result<(), String> {
    if observation.session.is_none() {
        return Ok(());
    }
    let all = |extent| matches!(extent, Extent::Session | Extent::Process);
    let Some(stop) = observation.stops.iter().find(|asked| all(asked.extent)) else {
        return Ok(());
    };
    let late = observation.lived.iter().find(|lived| {
        let tells_of_the_end = lived.kind == ItemKind::Hook;
        lived.began > stop.accepted && lived.began < observation.over && !tells_of_the_end
    });
    match late {
        Some(lived) => Err(format!(
            "{} {} began after the {} was stopped",
            lived.kind.as_str(),
            lived.id,
            stop.extent
        )),
        None => Ok(()),
    }
}
