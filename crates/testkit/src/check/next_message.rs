//! The session takes the next message (invariant 7).

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "next_message",
    invariant: Invariant::NoInvalidHistory,
    class: FailureClass::CorruptHistory,
    needs: &[EvidenceKind::Next],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    match (observation.next, observation.next_must) {
        (None, _) => Err("the next message has no outcome".to_owned()),
        (Some(reason), Some(must)) if reason != must => {
            Err(format!("the next message ended with {}", reason.as_str()))
        }
        _ => Ok(()),
    }
}
