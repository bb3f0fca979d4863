//! Every turn and every call that started has one ending, and nothing follows it (invariant 6).

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::record::SessionRecord as R;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "endings",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::WorkAfterStop,
    needs: &[EvidenceKind::Records],
    check,
};

/// Checks that turns come one after another, each with one ending that nothing of it follows, and that each call is
/// started once and ended at most once; ended turns have no open calls.
///
/// # Errors
/// The first violation, in words.
pub fn endings(records: &[R]) -> Result<(), String> {
    let mut running = None;
    let mut ended = BTreeSet::new();
    let mut calls = BTreeMap::new();
    for record in records {
        let turn = match record {
            R::TurnStarted { turn, .. } => {
                if let Some(open) = running {
                    return Err(format!("turn {turn} starts in turn {open}"));
                }
                if ended.contains(turn) {
                    return Err(format!("turn {turn} starts again"));
                }
                running = Some(*turn);
                calls.clear();
                continue;
            }
            R::CallStarted { turn, call, .. } => {
                if calls.insert(call.id.clone(), true).is_some() {
                    return Err(format!("call {} starts twice", call.id));
                }
                turn
            }
            R::CallFinished { turn, id, .. } => {
                // A call that was denied or rejected never started.
                if calls.insert(id.clone(), false) == Some(false) {
                    return Err(format!("call {id} ends twice"));
                }
                turn
            }
            R::TurnCommitted { turn, .. } | R::TurnStopped { turn, .. } => turn,
            _ => continue,
        };
        if running != Some(*turn) {
            let kind = if ended.contains(turn) {
                "after its ending"
            } else {
                "before its start"
            };
            return Err(format!("turn {turn} goes on {kind}"));
        }
        if matches!(record, R::TurnCommitted { .. } | R::TurnStopped { .. }) {
            if let Some((id, _)) = calls.iter().find(|(_, open)| **open) {
                return Err(format!("turn {turn} ends and its call {id} does not"));
            }
            running = None;
            ended.insert(*turn);
        }
    }
    Ok(())
}

fn check(observation: &RunObservation) -> Result<(), String> {
    endings(&observation.records_after_next)
}
