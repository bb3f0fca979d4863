//! A tool runs when the log says so: a crash must not forget what may have happened.

use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "durable_start",
    invariant: Invariant::NoSilentRepeat,
    class: FailureClass::RepeatedEffect,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let calls = aftermath
        .lived
        .iter()
        .filter(|lived| lived.kind == ItemKind::ToolCall);
    for lived in calls {
        let durable = aftermath.world.durable(lived.began);
        let is_known = aftermath.records_after_next.iter().take(durable).any(|record| {
            matches!(record, R::CallStarted { call, .. } if call.id.as_str() == &*lived.id)
        });
        if !is_known {
            return Err(format!("{} ran before its start was durable", lived.id));
        }
    }
    Ok(())
}
