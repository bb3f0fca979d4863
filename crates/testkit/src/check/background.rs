//! Background work starts once and ends once, and a closed session knows the end of all of it (invariant 6).

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::record::SessionRecord as R;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "background_once",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::OrphanWork,
    needs: &[EvidenceKind::Records],
    check,
};

/// Checks that each piece of background work is started once and ended at most once, in this order. Those without an
/// end are returned, but for what was let go: that outlives its session on purpose.
///
/// # Errors
/// The first violation, in words.
pub(crate) fn background(records: &[R]) -> Result<Vec<String>, String> {
    let (mut works, mut let_go) = (BTreeMap::new(), BTreeSet::new());
    for record in records {
        match record {
            R::BackgroundStarted { id, .. } if works.insert(id.to_string(), false).is_some() => {
                return Err(format!("{id} starts twice"));
            }
            R::BackgroundEnded { id, .. } => match works.insert(id.to_string(), true) {
                None => return Err(format!("{id} ends and never started")),
                Some(true) => return Err(format!("{id} ends twice")),
                Some(false) => {}
            },
            R::BackgroundDetached { id } => match works.get(id.as_str()) {
                None => return Err(format!("{id} is let go and never started")),
                Some(true) => return Err(format!("{id} is let go after its end")),
                Some(false) => drop(let_go.insert(id.to_string())),
            },
            _ => {}
        }
    }
    let open = works.into_iter();
    let open = open.filter(|(id, ended)| !ended && !let_go.contains(id));
    Ok(open.map(|(id, _)| id).collect())
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let records = &observation.records_after_next;
    let open = background(records)?;
    // Of a run alone it is the system around it that sees to the ends of its work.
    let is_session = |record: &R| {
        matches!(
            record,
            R::TurnStarted {
                message: Some(_),
                ..
            }
        )
    };
    if open.is_empty() || observation.hung || !records.iter().any(is_session) {
        return Ok(());
    }
    Err(format!(
        "the session is closed and {} has no end",
        open.join(", ")
    ))
}
