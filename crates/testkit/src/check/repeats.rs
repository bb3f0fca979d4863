//! No call runs twice (invariant 10).

use std::collections::BTreeSet;

use allstop_core::receipt::ItemKind;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "repeats",
    invariant: Invariant::NoSilentRepeat,
    class: FailureClass::RepeatedEffect,
    needs: &[EvidenceKind::Witness, EvidenceKind::Machine],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let runs = |observation: &RunObservation| {
        let calls = observation
            .lived
            .iter()
            .filter(|lived| lived.kind == ItemKind::ToolCall);
        calls.map(|lived| lived.id.clone()).collect::<Vec<_>>()
    };
    let asked: BTreeSet<_> = runs(undisturbed).into_iter().collect();
    let mut effects = BTreeSet::new();
    if let Some(twice) = observation.effects.iter().find(|it| !effects.insert(*it)) {
        return Err(format!("the command of {} ran twice", twice.call));
    }
    let mut seen = BTreeSet::new();
    for id in runs(observation) {
        if !seen.insert(id.clone()) {
            return Err(format!("the call {id} ran twice"));
        }
        if observation.disturbance().is_some() && !asked.contains(&id) {
            return Err(format!("the call {id} ran and nobody asked for it"));
        }
    }
    Ok(())
}
