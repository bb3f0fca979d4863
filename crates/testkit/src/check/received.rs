//! After a stop nothing more is received of a model's answer: what comes is paid for.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "received",
    invariant: Invariant::NoLostBill,
    class: FailureClass::LostBill,
    check,
};

/// Of an answer, one piece may be on its way when the stop is accepted.
const ON_ITS_WAY_MAX: usize = 1;

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    if aftermath.nothing_to_do() {
        return Ok(());
    }
    let Some(accepted) = aftermath.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let received = aftermath.world.received();
    let late = received
        .iter()
        .filter(|at| (accepted..aftermath.over).contains(at))
        .count();
    if late > ON_ITS_WAY_MAX {
        return Err(format!(
            "{late} pieces were received after the stop was accepted"
        ));
    }
    Ok(())
}
