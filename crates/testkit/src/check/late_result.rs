//! A call that a receipt calls stopped has no result: what it still said came too late.

use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::{CallOutcome, SessionRecord as R};

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "late_result",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    check,
};

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    for record in &aftermath.records {
        let R::TurnStopped {
            turn,
            receipt: Some(receipt),
            ..
        } = record
        else {
            continue;
        };
        let stopped = receipt.items().iter().filter(|item| {
            item.kind == ItemKind::ToolCall && !matches!(item.state, ItemState::Finished { .. })
        });
        for item in stopped {
            let has_result = aftermath.records.iter().any(|record| {
                matches!(record, R::CallFinished { turn: of, id, outcome: CallOutcome::Succeeded, .. }
                    if of == turn && id.as_str() == &*item.id)
            });
            if has_result {
                let (id, said) = (&item.id, item.state.as_str());
                return Err(format!("{id} is {said} in the receipt, and has a result"));
            }
        }
    }
    Ok(())
}
