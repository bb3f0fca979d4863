//! No real process that the run started past its scope, with `std::process`, is left.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "child_processes",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::OrphanWork,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    if aftermath.processes_left.is_empty() {
        return Ok(());
    }
    Err(format!(
        "started, and neither ended nor waited for when all was stopped: process {}. No stop reaches a process that \
         std::process starts: start it in the call's scope. The test has killed it",
        aftermath.processes_left.join(", ")
    ))
}
