//! A turn is taken back when that is said, and once (invariant 2).

use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord as R;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "undone",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::FalseReceipt,
    needs: &[EvidenceKind::Session],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(session) = &observation.session else {
        return Ok(());
    };
    let answers = session
        .undone
        .iter()
        .filter_map(|undone| undone.answer.as_ref());
    let said: Vec<TurnNumber> = answers.filter_map(|answer| answer.clone().ok()).collect();
    let records = observation
        .records
        .iter()
        .filter_map(|record| match record {
            R::TurnUndone { turn, .. } => Some(*turn),
            _ => None,
        });
    let done: Vec<TurnNumber> = records.collect();
    if done != said {
        return Err(format!(
            "{said:?} are said to be taken back, and {done:?} are"
        ));
    }
    Ok(())
}
