//! After a stop nothing more is received of a model's answer: what comes is paid for (invariant 11).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "received",
    invariant: Invariant::NoLostBill,
    class: FailureClass::LostBill,
    needs: &[EvidenceKind::Witness],
    check,
};

/// Of an answer, one piece may be on its way when the stop is accepted.
const ON_ITS_WAY_MAX: usize = 1;

fn check(observation: &RunObservation) -> Result<(), String> {
    if observation.nothing_to_do() {
        return Ok(());
    }
    let Some(accepted) = observation.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let received = observation.witness.received();
    let late = received
        .iter()
        .filter(|at| (accepted..observation.over).contains(at))
        .count();
    if late > ON_ITS_WAY_MAX {
        return Err(format!(
            "{late} pieces were received after the stop was accepted"
        ));
    }
    Ok(())
}
