//! A call that a receipt calls stopped has no result: what it still said came too late (invariant 6).

use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::{CallOutcome, SessionRecord as R};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "late_result",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::StaleReply,
    needs: &[EvidenceKind::Records],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    for record in &observation.records {
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
            let has_result = observation.records.iter().any(|record| {
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
