//! Commit or stop: one of the two, whoever is first.

use allstop_core::CauseKind;
use allstop_core::record::SessionRecord as R;

use super::{Checker, FailureClass, Invariant, Undisturbed};
use crate::explore::{Aftermath, Point};

pub(super) const AFTER_STOP: Checker = Checker {
    name: "commit_after_stop",
    invariant: Invariant::NoHalfTurn,
    class: FailureClass::WorkAfterStop,
    check: no_commit_after_a_stop,
};

pub(super) const LOST_STOP: Checker = Checker {
    name: "lost_stop",
    invariant: Invariant::NoMixedCauses,
    class: FailureClass::LostStop,
    check: no_stop_is_lost,
};

/// The moments in which commits were handed to the log. The decision falls just before, and no point lies between.
fn commits(points: &[Point]) -> impl Iterator<Item = &Point> {
    points
        .iter()
        .filter(|point| point.is_append() && point.of.contains("turn_committed"))
}

fn no_commit_after_a_stop(aftermath: &Aftermath, _: &Undisturbed) -> Result<(), String> {
    let Some(stop) = aftermath.disturbance() else {
        return Ok(());
    };
    let late = commits(&aftermath.points).find(|commit| match stop.point {
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

/// A stop that found something to stop ends the run: its last turn is not a completed one that began after it, and a run
/// that would have gone on does not.
fn no_stop_is_lost(aftermath: &Aftermath, undisturbed: &Undisturbed) -> Result<(), String> {
    let Some(stop) = aftermath.disturbance() else {
        return Ok(());
    };
    let last = aftermath
        .records
        .iter()
        .rev()
        .find(|record| matches!(record, R::TurnCommitted { .. } | R::TurnStopped { .. }));
    let stopped = matches!(last, Some(R::TurnStopped { .. }));
    let writes_no_ending = stop.cause.kind == CauseKind::LeaseLost;
    let all_was_committed =
        commits(&aftermath.points).count() == commits(&undisturbed.points).count();
    if stopped || writes_no_ending || aftermath.nothing_to_do() || all_was_committed {
        return Ok(());
    }
    Err(format!(
        "a stop ({}) was accepted and the turn has no ending by it",
        stop.cause
    ))
}
