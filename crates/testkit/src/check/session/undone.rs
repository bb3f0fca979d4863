//! A turn is taken back when that is said, and once.

use allstop_core::TurnNumber;
use allstop_core::record::SessionRecord as R;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "undone",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::FalseReceipt,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let Some(session) = &aftermath.session else {
        return Ok(());
    };
    let answers = session
        .undone
        .iter()
        .filter_map(|undone| undone.answer.as_ref());
    let said: Vec<TurnNumber> = answers.filter_map(|answer| answer.clone().ok()).collect();
    let records = aftermath.records.iter().filter_map(|record| match record {
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
