//! The log: each start has one ending, no record is missing, and a session can continue from the log.

use std::collections::{BTreeMap, BTreeSet};

use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;
use allstop_core::{CauseKind, StopReason, Timestamp};

use super::conversation::is_recovered;
use super::record_facts::{ending, without_run_specific_fields};
use crate::observe::{APPEND, Moment, Point, RunObservation};

/// Checks the order of turns and calls. Turns follow one another. Each turn has one ending, and the turn has no record
/// after its ending. Each call starts once and ends at most once. When a turn ends, none of its calls is open.
///
/// # Errors
/// Returns a description of the first violation.
pub fn endings(records: &[R]) -> Result<(), String> {
    let mut running = None;
    let mut ended = BTreeSet::new();
    let mut calls = BTreeMap::new();
    for record in records {
        let turn = match record {
            R::TurnStarted { turn, .. } => {
                if let Some(open) = running {
                    return Err(format!("turn {turn} starts in turn {open}"));
                }
                if ended.contains(turn) {
                    return Err(format!("turn {turn} starts again"));
                }
                running = Some(*turn);
                calls.clear();
                continue;
            }
            R::CallStarted { turn, call, .. } => {
                if calls.insert(call.id.clone(), true).is_some() {
                    return Err(format!("call {} starts twice", call.id));
                }
                turn
            }
            R::CallFinished { turn, id, .. } => {
                // A call that was denied or rejected has no record of a start.
                if calls.insert(id.clone(), false) == Some(false) {
                    return Err(format!("call {id} ends twice"));
                }
                turn
            }
            R::TurnCommitted { turn, .. } | R::TurnStopped { turn, .. } => turn,
            _ => continue,
        };
        if running != Some(*turn) {
            let kind = if ended.contains(turn) {
                "after its ending"
            } else {
                "before its start"
            };
            return Err(format!("turn {turn} goes on {kind}"));
        }
        if ending(record).is_some() {
            if let Some((id, _)) = calls.iter().find(|(_, open)| **open) {
                return Err(format!("turn {turn} ends and its call {id} does not"));
            }
            running = None;
            ended.insert(*turn);
        }
    }
    Ok(())
}

/// Every started turn and every started call has one ending, and no record follows this ending in its turn or call
/// (invariant 6 in `violation.rs`).
pub(super) fn one_ending_each(run: &RunObservation) -> Result<(), String> {
    endings(&run.records_after_next)
}

/// Number of records that are durable after these points.
pub(super) fn appended(points: &[Point]) -> usize {
    let appends = points
        .iter()
        .filter(|point| point.event == APPEND && point.moment == Moment::Inside);
    appends.map(|point| point.subject.split('+').count()).sum()
}

/// The log contains every record that it has confirmed (invariant 2). After `kill -9` the log contains exactly the
/// records that were appended before the kill. These records equal the records of the undisturbed run, which is the
/// same run without a stop.
pub(super) fn log_is_complete(run: &RunObservation) -> Result<(), String> {
    let records = &run.records;
    if run.is_witnessed {
        let confirmed = run.notes.durable(run.over);
        if records.len() >= confirmed {
            return Ok(());
        }
        return Err(format!(
            "{} records are in the store, {confirmed} were confirmed",
            records.len()
        ));
    }
    let expected = run.records_before + appended(&run.points);
    if records.len() != expected {
        return Err(format!(
            "{} records are in the store, {expected} were appended",
            records.len()
        ));
    }
    let mut pairs = records.iter().zip(&run.undisturbed().records);
    match pairs.find(|(here, there)| {
        without_run_specific_fields(here) != without_run_specific_fields(there)
    }) {
        Some((here, there)) => Err(format!("the store holds {here:?}, appended was {there:?}")),
        None => Ok(()),
    }
}

/// Number of cuts of the log, one after each of its last records, if no undisturbed run is known. The number is limited
/// because the cost of each cut grows with the number of records.
const CUTS_MAX: usize = 160;

/// Applies records to a state. An error names the position of the failed record in the whole log.
fn apply(state: &mut SessionState, records: &[R], behind: usize) -> Result<(), String> {
    for (number, record) in records.iter().enumerate() {
        state
            .apply(record)
            .map_err(|wrong| format!("record {}: {wrong}", behind + number + 1))?;
    }
    Ok(())
}

/// Cuts the log after each record, as a crash would, and recovers the session each time. Checks that the conversation
/// has exactly the ended turns, that recovery ends the open turn once, and that a second recovery has nothing to do.
///
/// # Errors
/// Returns a description of the first violation.
pub fn recovers_from_everywhere(records: &[R]) -> Result<(), String> {
    recovers_after(records, 0)
}

/// Like [`recovers_from_everywhere`], but skips cuts that keep fewer than `from` records, because these cuts are
/// already checked.
fn recovers_after(records: &[R], from: usize) -> Result<(), String> {
    let (checked, unchecked) = records.split_at(from.min(records.len()));
    let mut state = SessionState::default();
    apply(&mut state, checked, 0)?;
    let mut next = unchecked.iter();
    for len in checked.len()..=records.len() {
        let (before, _) = records.split_at(len);
        let at = |wrong: String| format!("cut after record {len}: {wrong}");
        let recovery = state.recovery_records(Timestamp::from_unix_ms(1));
        let after = [before, &recovery].concat();
        let mut recovered = state.clone();
        apply(&mut recovered, &recovery, len).map_err(at)?;
        if recovered.open_turn().is_some() {
            return Err(at("a turn is open after recovery".to_owned()));
        }
        if !is_recovered(&recovered.conversation().messages, before) {
            return Err(at("recovery changed the conversation".to_owned()));
        }
        if !recovered
            .recovery_records(Timestamp::from_unix_ms(2))
            .is_empty()
        {
            return Err(at("a second recovery has something to do".to_owned()));
        }
        endings(&after).map_err(at)?;
        if let Some(record) = next.next() {
            apply(&mut state, std::slice::from_ref(record), len)?;
        }
    }
    Ok(())
}

/// A session can be restored from every prefix of the log, so that it can continue after a crash (invariant 2).
pub(super) fn recovers(run: &RunObservation) -> Result<(), String> {
    let undisturbed = run.undisturbed();
    let mut folded = SessionState::default();
    apply(&mut folded, &run.folded_records(), 0)?;
    // A session that has lost its lease (its right to write) writes nothing more, and need not know the content of the
    // log.
    let lease_lost = run
        .disturbance()
        .is_some_and(|stop| stop.cause.kind == CauseKind::LeaseLost);
    // A resumed session may begin at a snapshot, after the turns that a compaction has summarised.
    if !lease_lost
        && run.kill.is_none()
        && run.is_settled()
        && let Some(state) = &run.state
        && *state != folded
    {
        return Err("what the session holds in memory is not the fold of its log".to_owned());
    }
    resumed_after_the_kill(run)?;
    let (records, known) = (&run.records_after_next, &undisturbed.records_after_next);
    // This run and the undisturbed run share their first records. The check of the undisturbed run has already covered
    // these records.
    let same = records.iter().zip(known).take_while(|(a, b)| a == b);
    let from = if run.undisturbed.is_none() {
        records.len().saturating_sub(CUTS_MAX)
    } else {
        same.count()
    };
    recovers_after(records, from)
}

/// When the session of a killed process is resumed, its open turn ends with the stop reason `error` and the detail
/// `crash` of the cause. The existing records stay unchanged.
fn resumed_after_the_kill(run: &RunObservation) -> Result<(), String> {
    let Some(kill) = &run.kill else {
        return Ok(());
    };
    let mut state = run.state.iter();
    if state.any(|state| state.open_turn().is_some()) {
        return Err("the turn is open after resuming".to_owned());
    }
    if !run.records_after_next.starts_with(&run.folded_records()) {
        return Err("the store does not hold what was there and what recovery added".to_owned());
    }
    let is_crash = |record: &R| match record {
        R::TurnStopped { reason, cause, .. } => {
            *reason == StopReason::Error && cause.detail.as_deref() == Some("crash")
        }
        _ => false,
    };
    match kill.recovered.last() {
        Some(ending) if !is_crash(ending) => {
            Err(format!("recovery ended the turn with {ending:?}"))
        }
        _ => Ok(()),
    }
}

/// If the plan was to kill the process, the process was killed, and its store can be read and resumed (invariant 2).
pub(super) fn was_killed(run: &RunObservation) -> Result<(), String> {
    let kill = run.kill.as_ref();
    match kill.and_then(|kill| kill.failure.clone()) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Up to the point of the stop, a run equals the undisturbed run. Otherwise the numbers of the points would mean
/// nothing.
pub(super) fn is_repeatable(run: &RunObservation) -> Result<(), String> {
    // A deadline uses a timer. The task of the timer is polled too, so the polls differ from those of the undisturbed
    // run.
    let (Some(point), None) = (run.point, run.deadline) else {
        return Ok(());
    };
    let undisturbed = &run.undisturbed().points;
    let pairs = run.points.iter().zip(undisturbed);
    let mut pairs = pairs.take(point as usize + 1);
    match pairs.find(|(here, there)| here != there) {
        Some((here, there)) => Err(format!(
            "the run is not repeatable: {here} in this one, {there} in the first"
        )),
        None => Ok(()),
    }
}
