//! What must hold of a run that was stopped at a random moment.

use allstop_agent::TurnOutcome;
use allstop_core::Extent;
use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_core::turn::{SessionState, StopPolicy};
use serde_json::Value;

use super::place::{BACKGROUND, PROMPTS};
use super::round::{ANSWERED_WITHIN, Answered, Left};
use crate::check::{self, FailureClass as F, Invariant as I, Violation};

/// A name, the promise, what users see where it is broken, and the check.
type Check = (&'static str, I, F, fn(&Left) -> Result<(), String>);

pub(super) const CHECKS: [Check; 12] = [
    (
        "real_waiters",
        I::NoDetachedWork,
        F::Hang,
        everybody_is_answered,
    ),
    (
        "real_receipt",
        I::NoClaimBeyondVerified,
        F::FalseReceipt,
        receipts_are_true,
    ),
    (
        "real_connection",
        I::NoClaimBeyondVerified,
        F::SignalMissesLeaf,
        stopped_calls_are_closed,
    ),
    (
        "real_endings",
        I::NoSecondEnding,
        F::WorkAfterStop,
        |left| check::endings(&left.records_after_next),
    ),
    ("real_recovery", I::NoHalfTurn, F::CorruptHistory, |left| {
        check::recovers_from_everywhere(&left.records_after_next)
    }),
    (
        "real_conversation",
        I::NoHalfTurn,
        F::WorkAfterStop,
        the_conversation_is_whole,
    ),
    (
        "real_history",
        I::NoInvalidHistory,
        F::CorruptHistory,
        every_request_is_valid,
    ),
    (
        "real_cause",
        I::NoMixedCauses,
        F::LostCause,
        the_cause_is_its_own,
    ),
    (
        "real_journal",
        I::NoSilentRepeat,
        F::RepeatedEffect,
        no_effect_is_forgotten,
    ),
    (
        "real_usage",
        I::NoLostBill,
        F::LostBill,
        the_bill_is_that_of_the_log,
    ),
    (
        "real_next_message",
        I::NoInvalidHistory,
        F::CorruptHistory,
        the_next_message_works,
    ),
    (
        "real_leftovers",
        I::NoDetachedWork,
        F::OrphanWork,
        nothing_is_left,
    ),
];

/// Applies every check.
pub(super) fn check(left: &Left) -> Vec<Violation> {
    let broken = CHECKS
        .iter()
        .filter_map(|(checker, invariant, class, check)| {
            Some(Violation {
                checker,
                invariant: *invariant,
                class: *class,
                what: check(left).err()?,
            })
        });
    broken.collect()
}

fn everybody_is_answered(left: &Left) -> Result<(), String> {
    if left.hung {
        return Err("it does not end".to_owned());
    }
    for Answered {
        extent,
        took,
        receipt,
        ..
    } in &left.answers
    {
        if receipt.is_none() {
            return Err(format!("a stop of the {extent} has no answer"));
        }
        if *took > ANSWERED_WITHIN {
            return Err(format!(
                "a stop of the {extent} was answered after {took:?}"
            ));
        }
    }
    Ok(())
}

/// What a quiet receipt covers does not run, as the operating system says; what it leaves alone is named.
fn receipts_are_true(left: &Left) -> Result<(), String> {
    for answer in &left.answers {
        let Some(receipt) = &answer.receipt else {
            continue;
        };
        let names_background = receipt
            .items()
            .iter()
            .any(|item| item.kind == ItemKind::Background && item.state.breaks_quiet());
        let is_let_alone = |line: &&String| {
            answer.extent == Extent::Turn && names_background && line.contains(BACKGROUND)
        };
        // Of what had ended before it was asked a stop says nothing.
        let says_quiet = receipt.quiet() && receipt.outcome().is_none();
        let mut running = answer.running.iter().filter(|line| !is_let_alone(line));
        if says_quiet && let Some(line) = running.next() {
            return Err(format!(
                "the receipt of the {} says quiet while this runs: {line}",
                answer.extent
            ));
        }
        if !receipt.quiet() && receipt.outcome().is_none() && answer.running.is_empty() {
            return Err(format!(
                "nothing runs, and the receipt is not quiet: {:?}",
                receipt.items()
            ));
        }
    }
    Ok(())
}

/// A model call that a receipt calls stopped has no connection any more, as the server sees it.
fn stopped_calls_are_closed(left: &Left) -> Result<(), String> {
    match left.answers.iter().find(|answer| answer.connections > 0) {
        Some(answer) => Err(format!(
            "a model call is stopped, and {} connections are open",
            answer.connections
        )),
        None => Ok(()),
    }
}

fn the_conversation_is_whole(left: &Left) -> Result<(), String> {
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

fn every_request_is_valid(left: &Left) -> Result<(), String> {
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
fn the_cause_is_its_own(left: &Left) -> Result<(), String> {
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
fn no_effect_is_forgotten(left: &Left) -> Result<(), String> {
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

fn the_bill_is_that_of_the_log(left: &Left) -> Result<(), String> {
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

fn the_next_message_works(left: &Left) -> Result<(), String> {
    match left.next {
        Some(allstop_core::StopReason::Completed) => Ok(()),
        next => Err(format!("the next message ended with {next:?}")),
    }
}

fn nothing_is_left(left: &Left) -> Result<(), String> {
    if left.leftovers.is_empty() {
        return Ok(());
    }
    Err(format!("still there: {}", left.leftovers.join(", ")))
}
