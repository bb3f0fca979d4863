//! What must hold of a run that was stopped at a random moment.

mod answers;
mod records;

use super::round::Left;
use crate::check::{self, FailureClass as F, Invariant as I, Violation};

/// A name, the promise, what users see where it is broken, and the check.
type Check = (&'static str, I, F, fn(&Left) -> Result<(), String>);

pub(super) const CHECKS: [Check; 12] = [
    (
        "real_waiters",
        I::NoDetachedWork,
        F::Hang,
        answers::everybody_is_answered,
    ),
    (
        "real_receipt",
        I::NoClaimBeyondVerified,
        F::FalseReceipt,
        answers::receipts_are_true,
    ),
    (
        "real_connection",
        I::NoClaimBeyondVerified,
        F::SignalMissesLeaf,
        answers::stopped_calls_are_closed,
    ),
    (
        "real_endings",
        I::NoSecondEnding,
        F::WorkAfterStop,
        |left| check::endings(&left.records_after_next),
    ),
    ("real_recovery", I::NoHalfTurn, F::CorruptHistory, |left| {
        check::recovers_from_everywhere(&left.records_after_next)
    }),
    (
        "real_conversation",
        I::NoHalfTurn,
        F::WorkAfterStop,
        records::the_conversation_is_whole,
    ),
    (
        "real_history",
        I::NoInvalidHistory,
        F::CorruptHistory,
        records::every_request_is_valid,
    ),
    (
        "real_cause",
        I::NoMixedCauses,
        F::LostCause,
        records::the_cause_is_its_own,
    ),
    (
        "real_journal",
        I::NoSilentRepeat,
        F::RepeatedEffect,
        records::no_effect_is_forgotten,
    ),
    (
        "real_usage",
        I::NoLostBill,
        F::LostBill,
        records::the_bill_is_that_of_the_log,
    ),
    (
        "real_next_message",
        I::NoInvalidHistory,
        F::CorruptHistory,
        records::the_next_message_works,
    ),
    (
        "real_leftovers",
        I::NoDetachedWork,
        F::OrphanWork,
        nothing_is_left,
    ),
];

/// Applies every check.
pub(super) fn check(left: &Left) -> Vec<Violation> {
    let broken = CHECKS
        .iter()
        .filter_map(|(checker, invariant, class, check)| {
            Some(Violation {
                checker,
                invariant: *invariant,
                class: *class,
                what: check(left).err()?,
            })
        });
    broken.collect()
}

fn nothing_is_left(left: &Left) -> Result<(), String> {
    if left.leftovers.is_empty() {
        return Ok(());
    }
    Err(format!("still there: {}", left.leftovers.join(", ")))
}
