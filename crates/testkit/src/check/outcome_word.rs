//! The log's word for the end of a tool's call is what its future and its scope say: a limit of its own time is
//! `timed_out`, a stop `stopped`, a result `succeeded`; and what is shown live says the same.

use std::collections::BTreeSet;

use allstop_agent::AgentEvent;
use allstop_core::CauseKind;
use allstop_core::record::{CallOutcome, SessionRecord as R};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{CallEnding, EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "outcome_word",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::LostCause,
    needs: &[EvidenceKind::Witness],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let endings = observation.witness.call_endings();
    let committed: BTreeSet<_> = observation
        .records
        .iter()
        .filter_map(|record| match record {
            R::TurnCommitted { turn, .. } => Some(*turn),
            _ => None,
        })
        .collect();
    for record in &observation.records {
        let R::CallFinished {
            turn, id, outcome, ..
        } = record
        else {
            continue;
        };
        let mut of_call = endings.iter().filter(|ending| *ending.id == *id.as_str());
        // Sub-agents count their calls from one, too: where two have one id, nobody can tell which the record means.
        let (Some(ending), None) = (of_call.next(), of_call.next()) else {
            continue;
        };
        fits(*outcome, ending, committed.contains(turn))
            .map_err(|wrong| format!("the log says {outcome:?} of call {id}: {wrong}"))?;
        let shown = observation
            .events
            .iter()
            .find_map(|(_, event)| match event {
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

/// Checks that a word fits the real end of a call. In a committed turn a stop can only have been the call's.
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
        (TimedOut, cause) if cause != Some(CauseKind::Deadline) => {
            Err("no limit of time had passed")
        }
        (Failed, None) if in_a_committed_turn && ending.succeeded == Some(true) => {
            Err("it gave a result, and nobody had stopped it")
        }
        _ => Ok(()),
    }
}
