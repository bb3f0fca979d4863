//! Background work starts once and ends once, and a closed session knows the end of all of it.

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::record::SessionRecord as R;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "background_once",
    invariant: Invariant::NoSecondEnding,
    class: FailureClass::OrphanWork,
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

fn check(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    if aftermath.session.is_none() || aftermath.hung {
        return Ok(());
    }
    let open = background(&aftermath.records_after_next)?;
    if open.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the session is closed and {} has no end",
        open.join(", ")
    ))
}
