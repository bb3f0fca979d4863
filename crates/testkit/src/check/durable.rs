//! A tool runs when the log says so: a crash must not forget what may have happened (invariant 10).

use std::collections::BTreeSet;

use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "durable_start",
    invariant: Invariant::NoSilentRepeat,
    class: FailureClass::RepeatedEffect,
    needs: &[EvidenceKind::Records],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let calls = observation
        .lived
        .iter()
        .filter(|lived| lived.kind == ItemKind::ToolCall);
    for lived in calls {
        let durable = observation.witness.durable(lived.began);
        if !is_started(
            observation.records_after_next.iter().take(durable),
            &lived.id,
        ) {
            return Err(format!("{} ran before its start was durable", lived.id));
        }
    }
    for effect in &observation.effects {
        if !is_started(observation.records.iter(), &effect.call) {
            return Err(format!(
                "the command of {} ran, and the log knows nothing of it",
                effect.call
            ));
        }
    }
    if observation.kill.is_none() {
        return Ok(());
    }
    let began = observation
        .points
        .iter()
        .filter(|point| point.what == "tool");
    for point in began {
        if !is_started(observation.records.iter(), &point.of) {
            return Err(format!("{} began and is not in the store", point.of));
        }
    }
    open_calls_are_unknown(observation)
}

fn is_started<'a>(mut records: impl Iterator<Item = &'a R>, id: &str) -> bool {
    records.any(|record| matches!(record, R::CallStarted { call, .. } if call.id.as_str() == id))
}

/// Calls that were open when the process died are unknown to whoever resumes the session.
fn open_calls_are_unknown(observation: &RunObservation) -> Result<(), String> {
    let mut open = BTreeSet::new();
    for record in &observation.records {
        match record {
            R::CallStarted { call, .. } => drop(open.insert(call.id.as_str())),
            R::CallFinished { id, .. } => drop(open.remove(id.as_str())),
            R::TurnCommitted { .. } | R::TurnStopped { .. } => open.clear(),
            _ => {}
        }
    }
    let state = observation.state.as_ref();
    let newest = state.and_then(|state| state.turns().last());
    let unknown = newest.into_iter().flat_map(|turn| &turn.unknown_calls);
    let unknown: BTreeSet<&str> = unknown.map(|call| call.id.as_str()).collect();
    if open.is_subset(&unknown) {
        return Ok(());
    }
    Err(format!("open were {open:?}, unknown are {unknown:?}"))
}
