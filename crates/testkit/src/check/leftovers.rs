//! Nothing lives on: no task, no scope with work, no process, none of the parts.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "leftovers",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::OrphanWork,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let mut left = aftermath.work_left.clone();
    let living = aftermath.lived.iter().filter(|lived| lived.ended.is_none());
    left.extend(living.map(|lived| format!("{} {}", lived.kind.as_str(), lived.id)));
    if aftermath.tasks_left > 0 {
        left.push(format!(
            "{} tasks that no scope knows: spawn in the call's scope, not with tokio::spawn",
            aftermath.tasks_left
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
