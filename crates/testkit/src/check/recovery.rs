//! The log alone makes the same session, from every prefix: what a crash leaves can be gone on with.

use allstop_core::record::SessionRecord as R;
use allstop_core::turn::SessionState;
use allstop_core::{CauseKind, Timestamp};

use super::{Checker, FailureClass, Invariant, Undisturbed, conversation_of};
use crate::explore::Aftermath;

pub(super) const CHECKER: Checker = Checker {
    name: "recovery",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::CorruptHistory,
    check,
};

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

fn check(aftermath: &Aftermath, undisturbed: &Undisturbed) -> Result<(), String> {
    let folded = fold(&aftermath.records)?;
    // Whoever has lost the lease has no say in it any more, and need not know what the log holds.
    let lease_lost = aftermath
        .disturbance()
        .is_some_and(|stop| stop.cause.kind == CauseKind::LeaseLost);
    if !lease_lost
        && aftermath.is_settled()
        && let Some(state) = &aftermath.state
        && *state != folded
    {
        return Err("what the session holds in memory is not the fold of its log".to_owned());
    }
    let (records, known) = (
        &aftermath.records_after_next,
        &undisturbed.records_after_next,
    );
    // What the undisturbed run left, too, was checked with that.
    let same = records.iter().zip(known).take_while(|(a, b)| a == b);
    let from = if std::ptr::eq(aftermath, undisturbed) {
        0
    } else {
        same.count()
    };
    recovers_after(records, from)
}
