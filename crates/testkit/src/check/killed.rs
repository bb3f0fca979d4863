//! A process that was to be killed was, and its store can be read and resumed (invariant 2).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "killed",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::CorruptHistory,
    needs: &[EvidenceKind::Kill],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let kill = observation.kill.as_ref();
    match kill.and_then(|kill| kill.failure.clone()) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}
