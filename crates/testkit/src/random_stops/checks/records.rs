//! What the log says, and what the model was sent.

use allstop_agent::TurnOutcome;
use allstop_core::record::SessionRecord as R;
use allstop_core::turn::{SessionState, StopPolicy};
use serde_json::Value;

use crate::check;
use crate::random_stops::place::PROMPTS;
use crate::random_stops::round::Left;

pub(super) fn the_conversation_is_whole(left: &Left) -> Result<(), String> {
    for record in &left.records {
        if let R::TurnStopped { turn, kept, .. } = record
            && left.plan.stop_policy == StopPolicy::Rollback
            && !kept.is_empty()
        {
            return Err(format!("turn {turn} was rolled back and left {kept:?}"));
        }
    }
    let folded = SessionState::fold(&left.records).map_err(|wrong| wrong.to_string())?;
    match &left.state {
        Some(state) if *state != folded => {
            Err("what the session holds in memory is not the fold of its log".to_owned())
        }
        _ => Ok(()),
    }
}

pub(super) fn every_request_is_valid(left: &Left) -> Result<(), String> {
    check::history(&check::conversation_of(&left.records_after_next))?;
    for (number, messages) in left.requests.iter().enumerate() {
        sent(messages).map_err(|wrong| format!("request {}: {wrong}", number + 1))?;
    }
    Ok(())
}

/// On the wire, after each message with calls comes one result for each of them.
fn sent(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = &message["tool_call_id"];
            let Some(at) = open.iter().position(|asked| *asked == id) else {
                return Err(format!("{id} is answered and was not asked"));
            };
            open.remove(at);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("no result for {open:?}"));
        }
        let calls = message["tool_calls"].as_array();
        open.extend(calls.into_iter().flatten().map(|call| &call["id"]));
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("no result for {open:?}"))
    }
}

/// The turn ended by the stop that came first, or all of them were committed.
pub(super) fn the_cause_is_its_own(left: &Left) -> Result<(), String> {
    let Some((_, way)) = left.plan.stop else {
        return Ok(());
    };
    let committed = left
        .records
        .iter()
        .filter(|record| matches!(record, R::TurnCommitted { .. }));
    let ending = left.records.iter().rev().find_map(|record| match record {
        R::TurnStopped { cause, .. } => Some(cause.kind),
        _ => None,
    });
    match ending {
        Some(cause) if cause == way.cause() => Ok(()),
        None if committed.count() == PROMPTS.len() => Ok(()),
        ending => Err(format!(
            "stopped by {way}, ended by {ending:?}: {}",
            told(left)
        )),
    }
}

/// How the turns ended, as they were told to whoever waited.
fn told(left: &Left) -> String {
    let turns = left.turns.iter().flatten().map(|turn| {
        let TurnOutcome {
            turn,
            stop_reason,
            cause,
            error,
            ..
        } = turn;
        format!("turn {turn} {stop_reason:?} {cause:?} {error:?}")
    });
    turns.collect::<Vec<_>>().join(", ")
}

/// What a command did to the world it did as a call of the journal, once; what ended by itself did all of it.
pub(super) fn no_effect_is_forgotten(left: &Left) -> Result<(), String> {
    for line in &left.trail {
        let id = line.rsplit(' ').next().unwrap_or_default();
        let is_start =
            |record: &&R| matches!(record, R::CallStarted { call, .. } if call.id.as_str() == id);
        if !left.records.iter().any(|record| is_start(&record)) {
            return Err(format!(
                "the command of {id} ran, and the log knows nothing of it"
            ));
        }
        if left.trail.iter().filter(|other| *other == line).count() > 1 {
            return Err(format!("the command of {id} ran twice"));
        }
    }
    Ok(())
}

pub(super) fn the_bill_is_that_of_the_log(left: &Left) -> Result<(), String> {
    let metered = check::metered(&left.records);
    let told = left.turns.iter().flatten().map(|turn| turn.usage);
    let told = told.reduce(|sum, usage| sum + usage).unwrap_or(metered);
    if told == metered {
        return Ok(());
    }
    Err(format!(
        "the outcomes say {told:?}, the log says {metered:?}"
    ))
}

pub(super) fn the_next_message_works(left: &Left) -> Result<(), String> {
    match left.next {
        Some(allstop_core::StopReason::Completed) => Ok(()),
        next => Err(format!("the next message ended with {next:?}")),
    }
}
