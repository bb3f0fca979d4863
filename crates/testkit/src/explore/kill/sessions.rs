//! What must hold of a session whose process was killed, beside what holds of every run.

use std::collections::BTreeMap;

use allstop_core::record::SessionRecord as R;
use allstop_core::{StopReason, TurnNumber};

use super::checks::Killed;
use crate::check;

/// Whatever somebody was told is in the store: each record, and how each message ended.
pub(super) fn what_was_told_is_there(killed: &Killed) -> Result<(), String> {
    let (told, stored) = (&killed.told, killed.records.len());
    if told.newest_record > stored as u64 {
        return Err(format!(
            "record {} was given out, and {stored} are in the store",
            told.newest_record
        ));
    }
    for outcome in &told.outcomes {
        let ending = ending_of(&killed.records, outcome.turn);
        if !ending.is_some_and(|ending| outcome.is(ending)) {
            return Err(format!(
                "told was {outcome:?}, and the store has {ending:?}"
            ));
        }
        let is_its = |record: &R| match record {
            R::TurnStarted { turn, message, .. } => {
                *turn == outcome.turn && message.as_ref() == Some(&outcome.message)
            }
            R::MessageSteered { turn, message, .. } => {
                *turn == outcome.turn && *message == outcome.message
            }
            _ => false,
        };
        if !killed.records.iter().any(is_its) {
            return Err(format!("the store has no turn of {outcome:?}"));
        }
    }
    Ok(())
}

fn ending_of(records: &[R], wanted: TurnNumber) -> Option<StopReason> {
    records.iter().find_map(|record| match record {
        R::TurnCommitted { turn, .. } if *turn == wanted => Some(StopReason::Completed),
        R::TurnStopped { turn, reason, .. } if *turn == wanted => Some(*reason),
        _ => None,
    })
}

/// Each piece of background work has one end by the time the session is closed again, whoever wrote it. For a run it is
/// the system around it that sees to that.
pub(super) fn background_is_accounted_for(killed: &Killed) -> Result<(), String> {
    let open = check::background(&killed.records_after_next)?;
    let has_message =
        |record: &R| matches!(record, R::TurnStarted { message, .. } if message.is_some());
    if open.is_empty() || !killed.records_after_next.iter().any(has_message) {
        return Ok(());
    }
    Err(format!(
        "{} has no end after the session was resumed and closed",
        open.join(", ")
    ))
}

/// No message is in two turns, and the next one has one of its own.
pub(super) fn no_message_comes_twice(killed: &Killed) -> Result<(), String> {
    let mut turns = BTreeMap::new();
    for record in &killed.records_after_next {
        if let R::TurnStarted {
            turn,
            message: Some(message),
            ..
        }
        | R::MessageSteered { turn, message, .. } = record
            && let Some(other) = turns.insert(message, turn)
        {
            return Err(format!("{message} is in the turns {other} and {turn}"));
        }
    }
    Ok(())
}
