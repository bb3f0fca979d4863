//! Commit or stop: one of the two, whoever is first (invariants 2 and 12).

use allstop_core::CauseKind;
use allstop_core::record::SessionRecord as R;

use super::{CheckerRule, FailureClass, Invariant};
use crate::observe::{EvidenceKind, Point, RunObservation};

pub(super) const AFTER_STOP: CheckerRule = CheckerRule {
    name: "commit_after_stop",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::WorkAfterStop,
    needs: &[EvidenceKind::Witness],
    check: no_commit_after_a_stop,
};

pub(super) const LOST_STOP: CheckerRule = CheckerRule {
    name: "lost_stop",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::LostStop,
    needs: &[EvidenceKind::Run],
    check: no_stop_is_lost,
};

/// The moments in which commits were handed to the log. The decision falls just before, and no point lies between.
fn commits(points: &[Point]) -> impl Iterator<Item = &Point> {
    points
        .iter()
        .filter(|point| point.is_append() && point.of.contains("turn_committed"))
}

/// Number of commits: as they were handed to the log where that is seen, else as the log has them.
fn commits_of(observation: &RunObservation) -> usize {
    if observation.is_witnessed {
        return commits(&observation.points).count();
    }
    let is_commit = |record: &&R| matches!(record, R::TurnCommitted { .. });
    observation.records.iter().filter(is_commit).count()
}

fn no_commit_after_a_stop(observation: &RunObservation) -> Result<(), String> {
    let Some(stop) = observation.disturbance() else {
        return Ok(());
    };
    let late = commits(&observation.points).find(|commit| match stop.point {
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

/// A stop that found something to stop ends the run: its last turn is not a completed one that began after it, and a
/// run that would have gone on does not.
fn no_stop_is_lost(observation: &RunObservation) -> Result<(), String> {
    let Some(stop) = observation.disturbance() else {
        return Ok(());
    };
    let last = observation
        .records
        .iter()
        .rev()
        .find(|record| matches!(record, R::TurnCommitted { .. } | R::TurnStopped { .. }));
    let stopped = matches!(last, Some(R::TurnStopped { .. }));
    let writes_no_ending = stop.cause.kind == CauseKind::LeaseLost;
    let all_was_committed = commits_of(observation) == commits_of(observation.undisturbed());
    let nothing_to_do = observation.is_witnessed && observation.nothing_to_do();
    if stopped || writes_no_ending || nothing_to_do || all_was_committed {
        return Ok(());
    }
    Err(format!(
        "a stop ({}) was accepted and the turn has no ending by it",
        stop.cause
    ))
}
