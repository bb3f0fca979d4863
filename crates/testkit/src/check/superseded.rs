//! A superseded message is not answered, and leaves what its policy says: its words, or nothing (invariant 2).

use allstop_core::record::SessionRecord as R;
use allstop_core::{CauseKind, Message, TurnNumber};
use allstop_session::{Admission, FollowUp};

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, RunObservation, SentMessage, SessionObservation};

pub(super) const RULE: CheckerRule = CheckerRule {
    name: "superseded",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::WorkAfterStop,
    needs: &[EvidenceKind::Session],
    check,
};

/// The first message that superseded this one.
pub(super) fn superseder<'a>(
    session: &'a SessionObservation,
    older: &SentMessage,
) -> Option<&'a SentMessage> {
    session.taken().find(|newer| {
        let ended_before = matches!(&older.outcome, Some((told, _)) if *told < newer.order);
        newer.order > older.order
            && !ended_before
            && matches!(newer.admission, Ok(Some(Admission::Supersedes { .. })))
    })
}

/// True if the turn's commit was handed to the log before that point: then it was decided.
pub(super) fn was_committed(observation: &RunObservation, turn: TurnNumber, before: u32) -> bool {
    let commits = observation
        .records
        .iter()
        .filter_map(|record| match record {
            R::TurnCommitted { turn, .. } => Some(*turn),
            _ => None,
        });
    let place = commits.into_iter().position(|committed| committed == turn);
    let handed = observation
        .points
        .iter()
        .filter(|point| point.is_append() && point.of.contains("turn_committed"));
    let point = place.and_then(|place| handed.into_iter().nth(place));
    point.is_some_and(|point| point.number <= before)
}

fn check(observation: &RunObservation) -> Result<(), String> {
    let Some(session) = &observation.session else {
        return Ok(());
    };
    for older in session.taken() {
        let (Some(newer), Some((_, outcome))) = (superseder(session, older), &older.outcome) else {
            continue;
        };
        let names = || format!("{:?}, superseded by {:?}", older.text, newer.text);
        if outcome.is_completed() {
            let committed = |turn| was_committed(observation, turn, newer.point);
            if outcome.turn.is_some_and(committed) {
                continue;
            }
            return Err(format!("{}, was answered all the same", names()));
        }
        let only_superseded = observation.stops.is_empty();
        let cause = outcome.cause.as_ref().map(|cause| cause.kind);
        if only_superseded && cause != Some(CauseKind::Superseded) {
            return Err(format!("{}, ended with {cause:?}", names()));
        }
        if cause == Some(CauseKind::Superseded) {
            left(observation, outcome.turn, older, newer.policy)
                .map_err(|wrong| format!("{}: {wrong}", names()))?;
        }
    }
    Ok(())
}

/// Checks what is left of a superseded turn.
fn left(
    observation: &RunObservation,
    turn: Option<TurnNumber>,
    older: &SentMessage,
    policy: FollowUp,
) -> Result<(), String> {
    let kept = observation.records.iter().find_map(|record| match record {
        R::TurnStopped { turn: of, kept, .. } if Some(*of) == turn => Some(kept.as_slice()),
        _ => None,
    });
    let kept = kept.unwrap_or_default();
    let is_said = |message: &std::sync::Arc<Message>| matches!(&**message, Message::User { text } if *text == older.text);
    match policy {
        FollowUp::Replace if !kept.is_empty() => Err(format!("it was replaced and left {kept:?}")),
        FollowUp::Interrupt if !kept.iter().any(is_said) => Err(format!(
            "it was interrupted and its words are lost: {kept:?}"
        )),
        _ => Ok(()),
    }
}
