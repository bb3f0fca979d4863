//! The session takes the next message.

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "next_message",
    invariant: Invariant::NoInvalidHistory,
    class: FailureClass::CorruptHistory,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    match (aftermath.next, aftermath.next_must) {
        (None, _) => Err("the next message has no outcome".to_owned()),
        (Some(reason), Some(must)) if reason != must => {
            Err(format!("the next message ended with {}", reason.as_str()))
        }
        _ => Ok(()),
    }
}
