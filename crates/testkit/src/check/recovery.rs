//! The log alone makes the same session, from every prefix (invariant 2): a session can continue after a crash.

use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;
use allstop_core::{CauseKind, StopReason, Timestamp};

use super::{CheckerRule, FailureClass, Invariant, conversation_of};
use crate::observe::{EvidenceKind, RunObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "recovery",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::CorruptHistory,
    needs: &[EvidenceKind::Records],
    check,
};

/// Newest records that are cut where no undisturbed run was: each cut costs as much as there are records.
const CUTS_MAX: usize = 160;

fn fold(records: &[R]) -> Result<SessionState, String> {
    let mut state = SessionState::default();
    apply(&mut state, records, 0)?;
    Ok(state)
}

/// Applies records that stand behind so many others.
fn apply(state: &mut SessionState, records: &[R], behind: usize) -> Result<(), String> {
    for (number, record) in records.iter().enumerate() {
        state
            .apply(record)
            .map_err(|wrong| format!("record {}: {wrong}", behind + number + 1))?;
    }
    Ok(())
}

/// Cuts the records after each, as a crash would, recovers, and checks that the conversation is that of the turns that
/// had ended, that the open turn is ended once, and that a second recovery finds nothing to do.
///
/// # Errors
/// The first violation, in words.
pub fn recovers_from_everywhere(records: &[R]) -> Result<(), String> {
    recovers_after(records, 0)
}

/// The same, where the cuts after fewer than `from` records were checked before.
fn recovers_after(records: &[R], from: usize) -> Result<(), String> {
    let (checked, unchecked) = records.split_at(from.min(records.len()));
    let mut state = fold(checked)?;
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
        if recovered.conversation().messages != conversation_of(before) {
            return Err(at("recovery changed the conversation".to_owned()));
        }
        if !recovered
            .recovery_records(Timestamp::from_unix_ms(2))
            .is_empty()
        {
            return Err(at("a second recovery has something to do".to_owned()));
        }
        super::endings(&after).map_err(at)?;
        if let Some(record) = next.next() {
            apply(&mut state, std::slice::from_ref(record), len)?;
        }
    }
    Ok(())
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let undisturbed = observation.undisturbed();
    let folded = fold(&observation.folded_records())?;
    // Whoever has lost the lease has no say in it any more, and need not know what the log holds.
    let lease_lost = observation
        .disturbance()
        .is_some_and(|stop| stop.cause.kind == CauseKind::LeaseLost);
    // A session that is resumed may begin at a snapshot, behind the turns that a compaction has summed up.
    if !lease_lost
        && observation.kill.is_none()
        && observation.is_settled()
        && let Some(state) = &observation.state
        && *state != folded
    {
        return Err("what the session holds in memory is not the fold of its log".to_owned());
    }
    resumed_after_the_kill(observation)?;
    let (records, known) = (
        &observation.records_after_next,
        &undisturbed.records_after_next,
    );
    // What the undisturbed run left, too, was checked with that.
    let same = records.iter().zip(known).take_while(|(a, b)| a == b);
    let from = if observation.undisturbed.is_none() {
        records.len().saturating_sub(CUTS_MAX)
    } else {
        same.count()
    };
    recovers_after(records, from)
}

/// Resuming the session of a killed process ends its turn by a crash, and changes nothing of what was there.
fn resumed_after_the_kill(observation: &RunObservation) -> Result<(), String> {
    let Some(kill) = &observation.kill else {
        return Ok(());
    };
    let mut state = observation.state.iter();
    if state.any(|state| state.open_turn().is_some()) {
        return Err("the turn is open after resuming".to_owned());
    }
    if !observation
        .records_after_next
        .starts_with(&observation.folded_records())
    {
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
