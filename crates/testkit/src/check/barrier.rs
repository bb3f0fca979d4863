//! After a stop has been accepted nothing in its extent starts.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "barrier",
    invariant: Invariant::NoStartBehindBarrier,
    class: FailureClass::WorkAfterStop,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let Some(accepted) = aftermath.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let late = aftermath.lived.iter().find(|lived| {
        // What begins after the run is over is the next message's.
        lived.is_foreground() && lived.began > accepted && lived.began < aftermath.over
    });
    match late {
        Some(lived) if !aftermath.nothing_to_do() => Err(format!(
            "{} {} began after the stop was accepted",
            lived.kind.as_str(),
            lived.id
        )),
        _ => Ok(()),
    }
}
