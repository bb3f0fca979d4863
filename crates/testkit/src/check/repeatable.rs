//! Up to the point of the stop a run is the undisturbed one. Without that no point means anything.

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "repeatable",
    invariant: Invariant::NoClaimBeyondVerified,
    class: FailureClass::FalseReceipt,
    needs: &[EvidenceKind::Witness],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    // A deadline is a timer, whose task is polled too.
    let (Some(point), None) = (observation.point, observation.deadline) else {
        return Ok(());
    };
    let undisturbed = &observation.undisturbed().points;
    let pairs = observation.points.iter().zip(undisturbed);
    let mut pairs = pairs.take(point as usize + 1);
    match pairs.find(|(here, there)| here != there) {
        Some((here, there)) => Err(format!(
            "the run is not repeatable: {here} in this one, {there} in the first"
        )),
        None => Ok(()),
    }
}
