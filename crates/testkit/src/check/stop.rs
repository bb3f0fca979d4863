//! Stops: each gets an answer, prevents later commits, and keeps its cause.

use std::time::Duration;

use allstop_agent::AgentEvent;
use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::record::SessionRecord as R;
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopReason};
use allstop_scope::FORCE_MAX;

use super::receipt::{covered, in_extent, reports_running};
use super::record_facts::ending;
use crate::observe::{ObservedStop, RunObservation, StopAnswer};

/// Every caller that waits for a stop gets an answer within the grace and the time for force (invariant 1 in
/// `violation.rs`). The grace is the time in which work may end by itself.
pub(super) fn every_stop_is_answered(run: &RunObservation) -> Result<(), String> {
    if run.hung {
        let waits = run
            .all_stops()
            .filter(|asked| asked.answer.is_none())
            .count();
        return Err(format!("it does not end; {waits} stops have no answer"));
    }
    for asked in run.all_stops() {
        let Some(answer) = &asked.answer else {
            return Err("a stop has no answer".to_owned());
        };
        let took = answer.at.saturating_sub(asked.at);
        if took > run.answered_within {
            return Err(format!("a stop was answered after {took:?}"));
        }
    }
    if let Some(stop) = run.disturbance() {
        let took = run.over_at.saturating_sub(stop.at);
        // The turn's ending is written after the receipt of the stop is created. The limit covers both.
        if took > run.answered_within {
            return Err(format!("the run went on for {took:?} after its stop"));
        }
    }
    Ok(())
}

/// After a stop has been accepted, no work in its extent (the part that the stop covers) starts (invariant 5).
pub(super) fn nothing_starts_after_stop(run: &RunObservation) -> Result<(), String> {
    let Some(accepted) = run.disturbance().and_then(|stop| stop.accepted) else {
        return Ok(());
    };
    let late = run.notes.work.iter().find(|work| {
        // Work that begins after the end of the run belongs to the next message.
        work.is_foreground() && work.began > accepted && work.began < run.over
    });
    match late {
        Some(work) if !run.nothing_to_do() => {
            Err(format!("{work} began after the stop was accepted"))
        }
        _ => Ok(()),
    }
}

/// Number of commits. If the parts of the run (models, tools) noted their work, these are the commits that were sent to
/// the log. Otherwise these are the commits in the log.
fn commits_of(run: &RunObservation) -> usize {
    if run.is_witnessed {
        return run.commits().count();
    }
    let is_commit = |record: &&R| matches!(record, R::TurnCommitted { .. });
    run.records.iter().filter(is_commit).count()
}

pub(super) fn no_commit_after_a_stop(run: &RunObservation) -> Result<(), String> {
    let Some(stop) = run.disturbance() else {
        return Ok(());
    };
    let late = run.commits().find(|commit| match stop.point {
        Some(point) => commit.number > point,
        None => commit.at > stop.at,
    });
    match late {
        Some(commit) => Err(format!(
            "stopped ({}) and then committed, at {commit}",
            stop.cause
        )),
        None => Ok(()),
    }
}

/// If a stop finds something to stop, this stop ends the run. The last turn of the run is then a stopped turn. There
/// are two exceptions: the run had committed all of its turns, or the run had lost its lease (its right to write).
pub(super) fn no_stop_is_lost(run: &RunObservation) -> Result<(), String> {
    let Some(stop) = run.disturbance() else {
        return Ok(());
    };
    let last = run
        .records
        .iter()
        .rev()
        .find(|record| ending(record).is_some());
    let stopped = matches!(last, Some(R::TurnStopped { .. }));
    let writes_no_ending = stop.cause.kind == CauseKind::LeaseLost;
    let all_was_committed = commits_of(run) == commits_of(run.undisturbed());
    let nothing_to_do = run.is_witnessed && run.nothing_to_do();
    if stopped || writes_no_ending || nothing_to_do || all_was_committed {
        return Ok(());
    }
    Err(format!(
        "a stop ({}) was accepted and the turn has no ending by it",
        stop.cause
    ))
}

/// Cause and reason in the ending of the last stopped turn.
fn stopped(records: &[R]) -> Option<(&Cause, StopReason)> {
    records.iter().rev().find_map(|record| match record {
        R::TurnStopped { cause, reason, .. } => Some((cause, *reason)),
        _ => None,
    })
}

/// The first cause is used everywhere, and decides the stop reason (invariant 12).
pub(super) fn first_cause_wins(run: &RunObservation) -> Result<(), String> {
    let Some(stop) = run.disturbance() else {
        return Ok(());
    };
    // The scenario may end by itself with another cause, and that cause may have been first.
    let own = stopped(&run.undisturbed().records).map(|(cause, _)| cause.kind);
    receipt_causes_fit(run, own)?;
    for turn in run.turns.iter().flatten() {
        if let Some(receipt) = &turn.receipt
            && let Some(cause) = &turn.cause
            && receipt.cause().kind != cause.kind
            && Some(cause.kind) != own
        {
            let said = receipt.cause();
            return Err(format!(
                "the turn ended with {cause}, its receipt says {said}"
            ));
        }
    }
    let Some((cause, reason)) = stopped(&run.records) else {
        return Ok(());
    };
    if Some(cause.kind) == own {
        return Ok(());
    }
    if stop.cause.kind == CauseKind::LeaseLost {
        return Err(format!("a lost lease wrote an ending, with cause {cause}"));
    }
    if cause.kind != stop.cause.kind {
        return Err(format!(
            "stopped with cause {}, ended with {cause}",
            stop.cause
        ));
    }
    if Some(reason) != cause.kind.stop_reason() {
        return Err(format!(
            "the cause {cause} gave the reason {}",
            reason.as_str()
        ));
    }
    Ok(())
}

/// The cause in a receipt is the cause of the stop that the receipt answers. If this stop joined another stop, the
/// receipt has the cause of the other stop: an earlier stop, or a stop by the run itself.
fn receipt_causes_fit(run: &RunObservation, own: Option<CauseKind>) -> Result<(), String> {
    let mut asked_so_far = Vec::new();
    for asked in &run.stops {
        asked_so_far.push(asked.cause.kind);
        let Some(answer) = &asked.answer else {
            continue;
        };
        let said = answer.receipt.cause().kind;
        if !asked_so_far.contains(&said) && Some(said) != own {
            return Err(format!(
                "asked with {}, the receipt says {said}",
                asked.cause
            ));
        }
    }
    Ok(())
}

/// Two kinds of receipts: the receipts of the requested stops that found something to stop, each with the time that the
/// stop took; and the receipts of turns that were stopped from outside.
fn receipts(run: &RunObservation) -> impl Iterator<Item = (&Receipt, Duration)> {
    let asked = run.stops.iter().filter_map(|asked| {
        let answer = asked.answer.as_ref()?;
        Some((&*answer.receipt, answer.at.saturating_sub(asked.at)))
    });
    let since = run.disturbance().map(|stop| stop.at);
    let turns = run.turns.iter().flatten().filter_map(move |turn| {
        let took = run.over_at.saturating_sub(since?);
        Some((&**turn.receipt.as_ref()?, took))
    });
    asked
        .chain(turns)
        .filter(|(receipt, _)| receipt.outcome().is_none())
}

/// When the last step of a stop is over, every engine (task that drives a run) that the stop covers has acknowledged
/// the stop.
pub(super) fn engine_has_acknowledged(run: &RunObservation) -> Result<(), String> {
    let deaf = |item: &&ReceiptItem| {
        item.kind == ItemKind::Engine
            || item.state
                == ItemState::StillRunning {
                    why: NotStoppedReason::NotAcknowledged,
                }
    };
    for (receipt, _) in receipts(run) {
        if let Some(item) = receipt.items().iter().find(deaf) {
            return Err(format!("{} has never heard the stop", item.name));
        }
    }
    Ok(())
}

/// A receipt reports work in its extent as running only if the time for force has passed. Work whose watcher is gone
/// does not count, because its state is unknown.
pub(super) fn force_time_is_used(run: &RunObservation) -> Result<(), String> {
    let runs = |item: &&ReceiptItem| {
        matches!(&item.state, ItemState::StillRunning { why }
            if !matches!(why, NotStoppedReason::OutsideExtent | NotStoppedReason::WatcherGone))
    };
    for (receipt, took) in receipts(run) {
        if took < FORCE_MAX
            && let Some(item) = receipt.items().iter().find(runs)
        {
            return Err(format!("after {took:?} {} was let run", item.name));
        }
    }
    Ok(())
}

/// If a receipt has `cancel_observed`, two facts are true: the engine had acknowledged the stop, and no work that the
/// stop covers still ran.
pub(super) fn cancel_was_observed(run: &RunObservation) -> Result<(), String> {
    for (asked, answer) in run.answers() {
        let receipt = &answer.receipt;
        let left = in_extent(receipt)
            .find(|item| reports_running(item) && item.state.as_str() != "refused");
        if !receipt.cancel_observed() {
            if left.is_none() {
                return Err("the cancel was not observed, and no item says what is left".to_owned());
            }
            continue;
        }
        if let Some(item) = left {
            let (name, said) = (&item.name, item.state.as_str());
            return Err(format!("the cancel was observed, and {name} is {said}"));
        }
        let mut covered = covered(run, asked, receipt);
        if let Some(work) = covered.find(|work| work.was_alive(answer.order)) {
            return Err(format!("the cancel was observed, and {work} runs"));
        }
        if asked.extent == Extent::Turn
            && run.is_witnessed
            && run.session.is_none()
            && !engine_had_observed_stop(run, asked, answer)
        {
            return Err(
                "the cancel was observed, and until then the engine had shown nothing of it"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// True if an event of the engine shows, before the answer, that the engine had received a stop or had ended.
fn engine_had_observed_stop(
    run: &RunObservation,
    asked: &ObservedStop,
    answer: &StopAnswer,
) -> bool {
    let is_word = |event: &AgentEvent| {
        matches!(
            event,
            AgentEvent::StopHeard { .. } | AgentEvent::TurnEnded { .. }
        )
    };
    let mut events = run.notes.events.iter();
    // Before the first record of a turn, and after its ending, no engine exists that could acknowledge the stop.
    let durable = run.notes.durable(asked.accepted);
    let mut written = run.records.iter().take(durable).rev();
    let newest =
        written.find(|record| matches!(record, R::TurnStarted { .. }) || ending(record).is_some());
    !matches!(newest, Some(R::TurnStarted { .. }))
        || run.over <= answer.order
        || events.any(|(at, event)| *at <= answer.order && is_word(event))
}
