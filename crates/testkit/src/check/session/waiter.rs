//! Whoever waits and goes away stops nothing: the run is the same without them.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::check::without_chance;
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "waiter_gone",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::WrongExtent,
    check,
};

fn check(aftermath: &Aftermath, undisturbed: &Undisturbed) -> Result<(), String> {
    let Some(session) = &aftermath.session else {
        return Ok(());
    };
    if !session.sent.iter().any(|sent| sent.waiter_gone) || !aftermath.asked.is_empty() {
        return Ok(());
    }
    // Without the one who waits the run is over earlier: what follows by itself may be missing, and nothing else.
    let both = aftermath.records.iter().zip(&undisturbed.records);
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
