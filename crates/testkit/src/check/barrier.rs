//! After a stop has been accepted nothing in its extent starts (invariant 5).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "barrier",
    invariant: Invariant::NoStartBehindBarrier,
    class: FailureClass::WorkAfterStop,
    needs: &[EvidenceKind::Witness],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(accepted) = observation.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let late = observation.lived.iter().find(|lived| {
        // What begins after the run is over is the next message's.
        lived.is_foreground() && lived.began > accepted && lived.began < observation.over
    });
    match late {
        Some(lived) if !observation.nothing_to_do() => Err(format!(
            "{} {} began after the stop was accepted",
            lived.kind.as_str(),
            lived.id
        )),
        _ => Ok(()),
    }
}
