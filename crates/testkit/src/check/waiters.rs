//! Everybody who waits is answered, within grace and force (invariant 1).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "waiters",
    invariant: Invariant::NoDetachedWork,
    class: FailureClass::Hang,
    needs: &[EvidenceKind::Run],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    if observation.hung {
        let waits = observation
            .all_stops()
            .filter(|asked| asked.answer.is_none())
            .count();
        return Err(format!("it does not end; {waits} stops have no answer"));
    }
    for asked in observation.all_stops() {
        let Some(answer) = &asked.answer else {
            return Err("a stop has no answer".to_owned());
        };
        let took = answer.at.saturating_sub(asked.at);
        if took > observation.answered_within {
            return Err(format!("a stop was answered after {took:?}"));
        }
    }
    if let Some(stop) = observation.disturbance() {
        let took = observation.over_at.saturating_sub(stop.at);
        // The ending is written after the receipt is made, and both fit into it.
        if took > observation.answered_within {
            return Err(format!("the run went on for {took:?} after its stop"));
        }
    }
    Ok(())
}
