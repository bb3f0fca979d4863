//! Background work: each piece starts once and ends once. If a session reports that it is idle while background work
//! runs, the report names this work.

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_session::{BackgroundItem, SessionEventKind as K};

use crate::observe::{ObservedWork, Order, RunObservation};

/// Checks that each piece of background work starts once, and afterwards ends at most once. Returns the work that has
/// no end. Detached work, which was left running on purpose, is not in the result, because it may outlive its session.
///
/// # Errors
/// Returns a description of the first violation.
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

/// Each piece of background work starts once and ends once. When a session is closed, it has recorded the end of all
/// its background work (invariant 6 in `violation.rs`).
pub(super) fn background_ends_once(run: &RunObservation) -> Result<(), String> {
    let records = &run.records_after_next;
    let open = background(records)?;
    // A run without a session does not record the ends of its background work; the program that started the run does.
    let is_session = |record: &R| {
        matches!(
            record,
            R::TurnStarted {
                message: Some(_),
                ..
            }
        )
    };
    if open.is_empty() || run.hung || !records.iter().any(is_session) {
        return Ok(());
    }
    Err(format!(
        "the session is closed and {} has no end",
        open.join(", ")
    ))
}

/// The session reports that it is idle only if no turn is open, and each such report names all background work that
/// runs (invariant 3).
pub(super) fn idle_is_true(run: &RunObservation) -> Result<(), String> {
    let Some(session) = &run.session else {
        return Ok(());
    };
    let mut open = None;
    for (order, event) in &session.events {
        let running: &[BackgroundItem] = match &event.kind {
            K::Recorded { record, .. } => {
                match &**record {
                    R::TurnStarted { turn, .. } => open = Some(*turn),
                    R::TurnCommitted { .. } | R::TurnStopped { .. } => open = None,
                    _ => {}
                }
                continue;
            }
            K::AssistantIdle { running, .. } => running,
            K::SessionIdle { detached, .. } => detached,
            _ => continue,
        };
        if let Some(turn) = open {
            return Err(format!("idle is told in turn {turn}"));
        }
        all_named(run, *order, running)?;
    }
    for sent in &session.sent {
        if let Some((order, waited)) = &sent.waited
            && !waited.timed_out
        {
            all_named(run, *order, &waited.running)
                .map_err(|wrong| format!("whoever waited for {:?}: {wrong}", sent.text))?;
        }
    }
    Ok(())
}

/// Checks that a report of an idle session names all background work that is alive.
fn all_named(run: &RunObservation, at: Order, named: &[BackgroundItem]) -> Result<(), String> {
    let lives = |work: &&ObservedWork| work.kind == ItemKind::Background && work.was_alive(at);
    let unnamed = run.notes.work.iter().filter(lives).find(|work| {
        let mut ids = named.iter().map(|item| item.id.as_str());
        !ids.any(|id| id == &*work.id)
    });
    match unnamed {
        Some(work) => Err(format!("idle is told, and {} runs", work.id)),
        None => Ok(()),
    }
}
