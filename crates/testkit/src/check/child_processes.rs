//! No real process that the run started past its scope, with `std::process`, is left (invariant 1).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "child_processes",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::OrphanWork,
    needs: &[EvidenceKind::Witness],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    if observation.processes_left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "started, and neither ended nor waited for when all was stopped: process {}. No stop reaches a process that \
         std::process starts: start it in the call's scope. The test has killed it",
        observation.processes_left.join(", ")
    ))
}
