//! Everybody who waits is answered, within grace and force.

use std::time::Duration;

use allstop_scope::{FORCE_MAX, GRACE_DEFAULT};

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "waiters",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::Hang,
    check,
};

/// The longest that a stop may take.
const ANSWERED_WITHIN: Duration = GRACE_DEFAULT.saturating_add(FORCE_MAX);

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    if aftermath.hung {
        let waits = aftermath
            .asked
            .iter()
            .filter(|asked| asked.answer.is_none())
            .count();
        return Err(format!("it does not end; {waits} stops have no answer"));
    }
    for asked in &aftermath.asked {
        let Some(answer) = &asked.answer else {
            return Err("a stop has no answer".to_owned());
        };
        let took = answer.at.saturating_sub(asked.at);
        if took > ANSWERED_WITHIN {
            return Err(format!("a stop was answered after {took:?}"));
        }
    }
    if let Some(stop) = aftermath.disturbance() {
        let took = aftermath.over_at.saturating_sub(stop.at);
        // The ending is written after the receipt is made, and both fit into it.
        if took > ANSWERED_WITHIN {
            return Err(format!("the run went on for {took:?} after its stop"));
        }
    }
    Ok(())
}
