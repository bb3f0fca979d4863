//! Everything that somebody was told is in the log: each record, and the outcome of each message (invariants 2 and 3).

use allstop_core::record::SessionRecord as R;
use allstop_core::{MessageId, StopReason, TurnNumber};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation, ToldOutcome};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "told",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::LostBill,
    needs: &[EvidenceKind::Told],
    check,
};

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(told) = &observation.told else {
        return Ok(());
    };
    let records = &observation.records;
    if told.newest_record > records.len() as u64 {
        return Err(format!(
            "record {} was given out, and {} are in the log",
            told.newest_record,
            records.len()
        ));
    }
    told.outcomes
        .iter()
        .try_for_each(|outcome| is_in(records, outcome))
}

fn is_in(records: &[R], told: &ToldOutcome) -> Result<(), String> {
    if told.named.as_ref() != Some(&told.message) {
        return Err(format!(
            "{} was given another outcome: {told:?}",
            told.message
        ));
    }
    let turn = turn_of(records, &told.message);
    if turn != told.turn {
        return Err(format!(
            "{} is in {turn:?}, and told was {told:?}",
            told.message
        ));
    }
    let ending = told.turn.and_then(|turn| ending_of(records, turn));
    let fits = match ending {
        Some(ending) => told.is(ending),
        // Without a turn there is no ending, and one that waits for its store may come later.
        None => told.turn.is_none() || told.may_be_recovered,
    };
    if !fits {
        return Err(format!("told was {told:?}, and the log has {ending:?}"));
    }
    if !told.output.is_empty() && told.reason != StopReason::Completed.as_str() {
        return Err(format!(
            "an answer was told of a turn that has none: {told:?}"
        ));
    }
    Ok(())
}

/// The turn that a message caused, or that took it.
fn turn_of(records: &[R], wanted: &MessageId) -> Option<TurnNumber> {
    records.iter().find_map(|record| match record {
        R::TurnStarted { turn, message, .. } if message.as_ref() == Some(wanted) => Some(*turn),
        R::MessageSteered { turn, message, .. } if message == wanted => Some(*turn),
        _ => None,
    })
}

fn ending_of(records: &[R], wanted: TurnNumber) -> Option<StopReason> {
    records.iter().find_map(|record| match record {
        R::TurnCommitted { turn, .. } if *turn == wanted => Some(StopReason::Completed),
        R::TurnStopped { turn, reason, .. } if *turn == wanted => Some(*reason),
        _ => None,
    })
}
