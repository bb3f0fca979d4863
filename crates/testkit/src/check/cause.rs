//! The first cause wins, everywhere, and decides the reason (invariant 12).

use allstop_core::record::SessionRecord as R;
use allstop_core::{Cause, CauseKind};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "cause",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::LostCause,
    needs: &[EvidenceKind::Run],
    check,
};

/// The ending of the last turn that was stopped.
fn stopped(records: &[R]) -> Option<(&Cause, allstop_core::StopReason)> {
    records.iter().rev().find_map(|record| match record {
        R::TurnStopped { cause, reason, .. } => Some((cause, *reason)),
        _ => None,
    })
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let Some(stop) = observation.disturbance() else {
        return Ok(());
    };
    receipts_say_why(observation)?;
    // What the scenario ends with by itself may have been first.
    let own = stopped(&undisturbed.records).map(|(cause, _)| cause.kind);
    for turn in observation.turns.iter().flatten() {
        if let Some(receipt) = &turn.receipt
            && let Some(cause) = &turn.cause
            && receipt.cause().kind != cause.kind
            && Some(cause.kind) != own
        {
            let said = receipt.cause();
            return Err(format!(
                "the turn ended with {cause}, its receipt says {said}"
            ));
        }
    }
    let Some((cause, reason)) = stopped(&observation.records) else {
        return Ok(());
    };
    if stop.cause.kind == CauseKind::LeaseLost && Some(cause.kind) != own {
        return Err(format!("a lost lease wrote an ending, with cause {cause}"));
    }
    if cause.kind != stop.cause.kind && Some(cause.kind) != own {
        return Err(format!(
            "stopped with cause {}, ended with {cause}",
            stop.cause
        ));
    }
    if cause.kind == stop.cause.kind
        && Some(cause.kind) != own
        && Some(reason) != cause.kind.stop_reason()
    {
        return Err(format!(
            "the cause {cause} gave the reason {}",
            reason.as_str()
        ));
    }
    Ok(())
}

/// A receipt says why it was asked for, or why the one was that it joined: one asked before, or the run's own.
fn receipts_say_why(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let own = stopped(&undisturbed.records).map(|(cause, _)| cause.kind);
    let mut asked_so_far = Vec::new();
    for asked in &observation.stops {
        asked_so_far.push(asked.cause.kind);
        let Some(answer) = &asked.answer else {
            continue;
        };
        let said = answer.receipt.cause().kind;
        if !asked_so_far.contains(&said) && Some(said) != own {
            return Err(format!(
                "asked with {}, the receipt says {said}",
                asked.cause
            ));
        }
    }
    Ok(())
}
