//! Nothing lives on: no task, no scope with work, no process, none of the parts (invariant 1).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "leftovers",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::OrphanWork,
    needs: &[EvidenceKind::Run],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let mut left = observation.work_left.clone();
    let living = observation
        .lived
        .iter()
        .filter(|lived| lived.ended.is_none());
    left.extend(living.map(|lived| format!("{} {}", lived.kind.as_str(), lived.id)));
    if observation.tasks_left > 0 {
        left.push(format!(
            "{} tasks that no scope knows: spawn in the call's scope, not with tokio::spawn",
            observation.tasks_left
        ));
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "still there when all was stopped: {}",
            left.join(", ")
        ))
    }
}
