//! Messages of a session: each has one outcome, which agrees with the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_core::record::SessionRecord as R;
use allstop_core::{CauseKind, Extent, Message, MessageId, StopReason, TurnNumber};
use allstop_session::{Admission, FollowUp};

use super::record_facts::{ending, without_run_specific_fields};
use crate::observe::{DeliveredOutcome, RunObservation, SentMessage, SessionObservation};

/// Returns the message that a record puts into a turn, and the turn. Either the message started the turn, or it was
/// added to the turn while the turn ran.
fn placed(record: &R) -> Option<(&MessageId, TurnNumber)> {
    match record {
        R::TurnStarted { turn, message, .. } => Some((message.as_ref()?, *turn)),
        R::MessageSteered { turn, message, .. } => Some((message, *turn)),
        _ => None,
    }
}

/// Every accepted message has one outcome, in one turn, and the outcome agrees with the log (invariant 6 in
/// `violation.rs`).
pub(super) fn one_outcome_each(run: &RunObservation) -> Result<(), String> {
    let records = &run.records_after_next;
    let mut turns = BTreeMap::new();
    for (message, turn) in records.iter().filter_map(placed) {
        if let Some(other) = turns.insert(message, turn) {
            return Err(format!("{message} is in the turns {other} and {turn}"));
        }
    }
    let Some(session) = &run.session else {
        return Ok(());
    };
    for sent in session.taken() {
        let Some(id) = &sent.id else { continue };
        let turn = turns.get(id).copied();
        let Some((_, outcome)) = &sent.outcome else {
            if sent.waiter_gone || run.hung {
                continue;
            }
            return Err(format!("{id} was taken and came to nothing"));
        };
        if outcome.message.as_ref() != Some(id) {
            return Err(format!(
                "{id} was given the outcome of {:?}",
                outcome.message
            ));
        }
        if outcome.turn != turn {
            let said = outcome.turn;
            return Err(format!(
                "{id} is in {turn:?}, and its outcome says {said:?}"
            ));
        }
        if let Some(turn) = outcome.turn {
            ended_as(records, turn, (outcome.stop_reason, &outcome.output))
                .map_err(|wrong| format!("{id}, turn {turn}: {wrong}"))?;
        } else if outcome.is_completed() {
            return Err(format!("{id} is said to be answered, without a turn"));
        }
    }
    Ok(())
}

/// Checks that the ending in the log equals the reported outcome.
fn ended_as(records: &[R], turn: TurnNumber, said: (StopReason, &str)) -> Result<(), String> {
    let ending = records.iter().find_map(|record| {
        let (_, reason) = ending(record).filter(|(of, _)| *of == turn)?;
        let output = match record {
            R::TurnCommitted { messages, .. } => match messages.last().map(AsRef::as_ref) {
                Some(Message::Assistant { text, .. }) => &**text,
                _ => "",
            },
            _ => "",
        };
        Some((reason, output))
    });
    if ending == Some(said) {
        return Ok(());
    }
    Err(format!("it ended with {ending:?}, and {said:?} was told"))
}

/// The log contains every fact that was delivered before the kill: each record, and the outcome of each message
/// (invariants 2 and 3).
pub(super) fn delivered_facts_are_logged(run: &RunObservation) -> Result<(), String> {
    let Some(delivered) = &run.delivered_facts else {
        return Ok(());
    };
    let records = &run.records;
    if delivered.newest_record > records.len() as u64 {
        return Err(format!(
            "record {} was given out, and {} are in the log",
            delivered.newest_record,
            records.len()
        ));
    }
    delivered
        .outcomes
        .iter()
        .try_for_each(|outcome| outcome_is_logged(records, outcome))
}

fn outcome_is_logged(records: &[R], delivered: &DeliveredOutcome) -> Result<(), String> {
    if delivered.named.as_ref() != Some(&delivered.message) {
        return Err(format!(
            "{} was given another outcome: {delivered:?}",
            delivered.message
        ));
    }
    let mut placed = records.iter().filter_map(placed);
    let turn = placed
        .find(|(message, _)| **message == delivered.message)
        .map(|(_, turn)| turn);
    if turn != delivered.turn {
        return Err(format!(
            "{} is in {turn:?}, and delivered was {delivered:?}",
            delivered.message
        ));
    }
    let mut endings = records.iter().filter_map(ending);
    let ending = endings.find(|(turn, _)| Some(*turn) == delivered.turn);
    let fits = match ending {
        Some((_, reason)) => delivered.is(reason),
        // A message without a turn has no ending in the log. If an ending waits for its store, the ending may be
        // written later.
        None => delivered.turn.is_none() || delivered.may_be_recovered,
    };
    if !fits {
        return Err(format!(
            "delivered was {delivered:?}, and the log has {ending:?}"
        ));
    }
    if !delivered.output.is_empty() && delivered.reason != StopReason::Completed.as_str() {
        return Err(format!(
            "an answer was delivered of a turn that has none: {delivered:?}"
        ));
    }
    Ok(())
}

/// The first message that superseded the message `older`.
pub(super) fn superseder<'a>(
    session: &'a SessionObservation,
    older: &SentMessage,
) -> Option<&'a SentMessage> {
    session.taken().find(|newer| {
        let ended_before = matches!(&older.outcome, Some((at, _)) if *at < newer.order);
        newer.order > older.order
            && !ended_before
            && matches!(newer.admission, Ok(Some(Admission::Supersedes { .. })))
    })
}

/// True if the commit of the turn was sent to the log before this point, so that a later stop does not change the turn.
pub(super) fn was_committed(run: &RunObservation, turn: TurnNumber, before: u32) -> bool {
    let mut commits = run
        .records
        .iter()
        .filter(|record| matches!(record, R::TurnCommitted { .. }));
    let place = commits.position(|record| ending(record).is_some_and(|(of, _)| of == turn));
    let point = place.and_then(|place| run.commits().nth(place));
    point.is_some_and(|point| point.number <= before)
}

/// A superseded message is not answered. The follow-up policy decides whether the text of the message stays in the
/// conversation (invariant 2).
pub(super) fn superseded_is_unanswered(run: &RunObservation) -> Result<(), String> {
    let Some(session) = &run.session else {
        return Ok(());
    };
    for older in session.taken() {
        let (Some(newer), Some((_, outcome))) = (superseder(session, older), &older.outcome) else {
            continue;
        };
        let names = || format!("{:?}, superseded by {:?}", older.text, newer.text);
        if outcome.is_completed() {
            let committed = |turn| was_committed(run, turn, newer.point);
            if outcome.turn.is_some_and(committed) {
                continue;
            }
            return Err(format!("{}, was answered all the same", names()));
        }
        let only_superseded = run.stops.is_empty();
        let cause = outcome.cause.as_ref().map(|cause| cause.kind);
        if only_superseded && cause != Some(CauseKind::Superseded) {
            return Err(format!("{}, ended with {cause:?}", names()));
        }
        if cause == Some(CauseKind::Superseded) {
            check_kept_messages(run, outcome.turn, older, newer.policy)
                .map_err(|wrong| format!("{}: {wrong}", names()))?;
        }
    }
    Ok(())
}

/// Checks the kept messages of a superseded turn.
fn check_kept_messages(
    run: &RunObservation,
    turn: Option<TurnNumber>,
    older: &SentMessage,
    policy: FollowUp,
) -> Result<(), String> {
    let kept = run.records.iter().find_map(|record| match record {
        R::TurnStopped { turn: of, kept, .. } if Some(*of) == turn => Some(kept.as_slice()),
        _ => None,
    });
    let kept = kept.unwrap_or_default();
    let said = Arc::new(Message::user(Arc::clone(&older.text)));
    match policy {
        FollowUp::Replace if !kept.is_empty() => Err(format!("it was replaced and left {kept:?}")),
        FollowUp::Interrupt if !kept.contains(&said) => Err(format!(
            "it was interrupted and its words are lost: {kept:?}"
        )),
        _ => Ok(()),
    }
}

/// If the receipt of a stop reports the turn of a message as stopped, the message is not answered. The cause in the
/// outcome of the message is the cause of one of the stops, or `superseded`.
pub(super) fn stays_stopped(run: &RunObservation) -> Result<(), String> {
    let Some(session) = &run.session else {
        return Ok(());
    };
    for (asked, answer) in run
        .answers()
        .filter(|(asked, _)| asked.extent == Extent::Turn)
    {
        let target = &answer.receipt.request().target;
        let turn = target.rsplit_once("/turn/");
        let turn = turn.and_then(|(_, turn)| turn.parse().ok()).map(TurnNumber);
        let message = target.rsplit_once("/message/").map(|(_, id)| id);
        for sent in session.taken() {
            let Some((_, outcome)) = &sent.outcome else {
                continue;
            };
            let is_it = turn.is_some() && outcome.turn == turn
                || message.is_some() && sent.id.as_ref().map(MessageId::as_str) == message;
            if !is_it {
                continue;
            }
            let committed = |turn| was_committed(run, turn, asked.point);
            if outcome.is_completed() && !outcome.turn.is_some_and(committed) {
                return Err(format!(
                    "{target} was stopped ({}) and {:?} was answered",
                    asked.cause, sent.text
                ));
            }
            if let Some(cause) = &outcome.cause {
                let mut given = run.stops.iter().map(|asked| asked.cause.kind);
                let superseded = CauseKind::Superseded;
                if cause.kind != superseded && !given.any(|kind| kind == cause.kind) {
                    return Err(format!("{target} ended with {cause}, which nobody said"));
                }
            }
        }
    }
    Ok(())
}

/// After a stop of the session or of the process, no work begins in the session until the session is opened again.
pub(super) fn nothing_begins(run: &RunObservation) -> Result<(), String> {
    if run.session.is_none() {
        return Ok(());
    }
    let all = |extent| matches!(extent, Extent::Session | Extent::Process);
    let Some(stop) = run.stops.iter().find(|asked| all(asked.extent)) else {
        return Ok(());
    };
    let late = run.notes.work.iter().find(|work| {
        let is_end_hook = work.kind == ItemKind::Hook;
        work.began > stop.accepted && work.began < run.over && !is_end_hook
    });
    match late {
        Some(work) => Err(format!(
            "{work} began after the {} was stopped",
            stop.extent
        )),
        None => Ok(()),
    }
}

/// The log undoes exactly the turns that the session reported as undone, and each of them once (invariant 2).
pub(super) fn undone_once(run: &RunObservation) -> Result<(), String> {
    let Some(session) = &run.session else {
        return Ok(());
    };
    let done = run.records.iter().filter_map(|record| match record {
        R::TurnUndone { turn, .. } => Some(*turn),
        _ => None,
    });
    let done: Vec<TurnNumber> = done.collect();
    let said = &session.undone;
    if done == *said {
        return Ok(());
    }
    Err(format!(
        "{said:?} are said to be taken back, and {done:?} are"
    ))
}

/// When a waiter leaves, nothing is stopped: the records equal the records of the run without this disturbance
/// (invariant 12).
pub(super) fn waiter_stops_nothing(run: &RunObservation) -> Result<(), String> {
    let mut sent = run.session.iter().flat_map(|session| &session.sent);
    if !sent.any(|sent| sent.waiter_gone) || !run.stops.is_empty() {
        return Ok(());
    }
    // Without the waiter, the run ends earlier, so the last records may be missing. But no record may differ.
    let mut both = run.records.iter().zip(&run.undisturbed().records);
    match both.position(|(here, there)| {
        without_run_specific_fields(here) != without_run_specific_fields(there)
    }) {
        Some(number) => Err(format!(
            "record {} is another without the one who waited",
            number + 1
        )),
        None => Ok(()),
    }
}
