//! A waiter that goes away stops nothing: the run is the same without it (invariant 12).

use super::{CheckerRule, FailureClass, Invariant};
use crate::check::without_chance;
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "waiter_gone",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::WrongExtent,
    needs: &[EvidenceKind::Session],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let Some(session) = &observation.session else {
        return Ok(());
    };
    if !session.sent.iter().any(|sent| sent.waiter_gone) || !observation.stops.is_empty() {
        return Ok(());
    }
    // Without the one who waits the run is over earlier: what follows by itself may be missing, and nothing else.
    let both = observation.records.iter().zip(&undisturbed.records);
    let differs = both
        .into_iter()
        .position(|(here, there)| without_chance(here) != without_chance(there));
    match differs {
        Some(number) => Err(format!(
            "record {} is another without the one who waited",
            number + 1
        )),
        None => Ok(()),
    }
}
