//! No call runs twice.

use std::collections::BTreeSet;

use allstop_core::receipt::ItemKind;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "repeats",
    invariant: Invariant::NoSilentRepeat,
    class: FailureClass::RepeatedEffect,
    check,
};

fn check(aftermath: &Aftermath, undisturbed: &Undisturbed) -> Result<(), String> {
    let runs = |aftermath: &Aftermath| {
        let calls = aftermath
            .lived
            .iter()
            .filter(|lived| lived.kind == ItemKind::ToolCall);
        calls.map(|lived| lived.id.clone()).collect::<Vec<_>>()
    };
    let asked: BTreeSet<_> = runs(undisturbed).into_iter().collect();
    let mut seen = BTreeSet::new();
    for id in runs(aftermath) {
        if !seen.insert(id.clone()) {
            return Err(format!("the call {id} ran twice"));
        }
        if aftermath.disturbance().is_some() && !asked.contains(&id) {
            return Err(format!("the call {id} ran and nobody asked for it"));
        }
    }
    Ok(())
}
