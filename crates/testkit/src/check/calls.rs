//! Tool calls: each call is recorded before it runs, runs only once, and ends with the outcome in the log.

use std::collections::BTreeSet;

use allstop_agent::AgentEvent;
use allstop_core::CauseKind;
use allstop_core::receipt::{ItemKind, ItemState};
use allstop_core::record::{CallOutcome, SessionRecord as R};

use crate::observe::{CallEnding, ObservedWork, RunObservation};

/// A tool starts only after the record of its start is durable in the log. Otherwise a crash could lose the only trace
/// of the call's effect (invariant 10 in `violation.rs`).
pub(super) fn start_is_durable(run: &RunObservation) -> Result<(), String> {
    for work in run.calls() {
        let durable = run.notes.durable(work.began);
        if !is_started(run.records_after_next.iter().take(durable), &work.id) {
            return Err(format!("{} ran before its start was durable", work.id));
        }
    }
    for effect in &run.effects {
        if !is_started(run.records.iter(), &effect.call) {
            return Err(format!(
                "the command of {} ran, and the log knows nothing of it",
                effect.call
            ));
        }
    }
    if run.kill.is_none() {
        return Ok(());
    }
    let began = run.points.iter().filter(|point| point.event == "tool");
    for point in began {
        if !is_started(run.records.iter(), &point.subject) {
            return Err(format!("{} began and is not in the store", point.subject));
        }
    }
    open_calls_are_unknown(run)
}

fn is_started<'a>(mut records: impl Iterator<Item = &'a R>, id: &str) -> bool {
    records.any(|record| matches!(record, R::CallStarted { call, .. } if call.id.as_str() == id))
}

/// Calls that were open when the process died have the outcome `unknown` in the resumed session.
fn open_calls_are_unknown(run: &RunObservation) -> Result<(), String> {
    let mut open = BTreeSet::new();
    for record in &run.records {
        match record {
            R::CallStarted { call, .. } => drop(open.insert(call.id.as_str())),
            R::CallFinished { id, .. } => drop(open.remove(id.as_str())),
            R::TurnCommitted { .. } | R::TurnStopped { .. } => open.clear(),
            _ => {}
        }
    }
    let state = run.state.as_ref();
    let newest = state.and_then(|state| state.turns().last());
    let unknown = newest.into_iter().flat_map(|turn| &turn.unknown_calls);
    let unknown: BTreeSet<&str> = unknown.map(|call| call.id.as_str()).collect();
    if open.is_subset(&unknown) {
        return Ok(());
    }
    Err(format!("open were {open:?}, unknown are {unknown:?}"))
}

/// No call runs twice (invariant 10).
pub(super) fn no_call_repeats(run: &RunObservation) -> Result<(), String> {
    let asked: BTreeSet<_> = run.undisturbed().calls().map(|call| &call.id).collect();
    let mut effects = BTreeSet::new();
    if let Some(twice) = run.effects.iter().find(|it| !effects.insert(*it)) {
        return Err(format!("the command of {} ran twice", twice.call));
    }
    let mut seen = BTreeSet::new();
    for ObservedWork { id, .. } in run.calls() {
        if !seen.insert(id) {
            return Err(format!("the call {id} ran twice"));
        }
        if run.disturbance().is_some() && !asked.contains(id) {
            return Err(format!("the call {id} ran and nobody asked for it"));
        }
    }
    Ok(())
}

/// The outcome of a tool call in the log agrees with the real end of the call: `timed_out` after the call's own time
/// limit, `stopped` after a stop, `succeeded` after a result. The live event has the same outcome.
pub(super) fn outcome_fits(run: &RunObservation) -> Result<(), String> {
    let endings = &run.notes.call_endings;
    let committed: BTreeSet<_> = run
        .records
        .iter()
        .filter_map(|record| match record {
            R::TurnCommitted { turn, .. } => Some(*turn),
            _ => None,
        })
        .collect();
    for record in &run.records {
        let R::CallFinished {
            turn, id, outcome, ..
        } = record
        else {
            continue;
        };
        let mut of_call = endings.iter().filter(|ending| *ending.id == *id.as_str());
        // Sub-agents also number their calls from one. If two calls have the same id, a record does not show which of
        // the two calls it is about.
        let (Some(ending), None) = (of_call.next(), of_call.next()) else {
            continue;
        };
        fits(*outcome, ending, committed.contains(turn))
            .map_err(|wrong| format!("the log says {outcome:?} of call {id}: {wrong}"))?;
        let shown = run.notes.events.iter().find_map(|(_, event)| match event {
            AgentEvent::ToolFinished {
                call_id, outcome, ..
            } if call_id == id => Some(*outcome),
            _ => None,
        });
        if let Some(shown) = shown
            && shown != *outcome
        {
            return Err(format!(
                "{shown:?} is shown of call {id}, {outcome:?} is logged"
            ));
        }
    }
    Ok(())
}

/// Checks that an outcome agrees with the real end of a call. In a committed turn, a call can be `stopped` only if the
/// stop was a stop of this single call.
fn fits(
    outcome: CallOutcome,
    ending: &CallEnding,
    in_a_committed_turn: bool,
) -> Result<(), &'static str> {
    use CallOutcome::{Failed, Stopped, Succeeded, TimedOut};
    match (outcome, ending.cause) {
        (Succeeded, _) if ending.succeeded != Some(true) => Err("it gave no result"),
        (Stopped, None) => Err("nobody had stopped it"),
        (Stopped, Some(CauseKind::Deadline)) if in_a_committed_turn => {
            Err("its own limit of time ended it")
        }
        // The arguments of a call can set a time limit for the work that the call starts. When this limit ends the
        // work, the call returns an error. The outcome is then `timed_out`, even if a stop arrives at the same moment.
        (TimedOut, _) if ending.succeeded == Some(false) => Ok(()),
        (TimedOut, cause) if cause != Some(CauseKind::Deadline) => {
            Err("no limit of time had passed")
        }
        (Failed, None) if in_a_committed_turn && ending.succeeded == Some(true) => {
            Err("it gave a result, and nobody had stopped it")
        }
        _ => Ok(()),
    }
}

/// If the receipt of a stop reports a call as stopped, the call has no result, because a late result is dropped
/// (invariant 6).
pub(super) fn no_late_result(run: &RunObservation) -> Result<(), String> {
    for record in &run.records {
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
            let has_result = run.records.iter().any(|record| {
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
