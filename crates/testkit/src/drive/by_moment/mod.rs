//! Driver by moment: stops real parts at random moments. The parts are processes of a shell, sockets of a server, a
//! store on disk, threads and the real clock. This driver finds errors that cannot occur on a paused clock. A run with
//! the same seed uses the same moments.
//!
//! Each run has two turns with parallel commands, a command that ignores SIGTERM, and a command in the background.
//! Undisturbed runs (without a stop) are measured first, so that the moments are spread over the whole run.

mod real_parts;
mod round;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use allstop_core::receipt::ItemState;
use allstop_core::turn::StopPolicy;
use allstop_core::{CauseKind, Extent, StopReason};
use parking_lot::Mutex;

use crate::check::{self, Violation};
use crate::observe::{ObservedStop, RunObservation};
use crate::random::{self, Random, SEED_VARIABLE};
use crate::report::{CheckReport, Failure};
use crate::stop_method::StopMethod;
use round::{PlannedRound, play};

/// Number of runs at the same time. Runs mostly wait, so several fit on a machine, and a stop must also work on a busy
/// machine.
const SIDE_BY_SIDE: u32 = 4;

/// Number of undisturbed runs that are measured. The first run also fills the caches of the machine.
const MEASURED: u32 = 3;

/// Maximum time between the first and the second stop of a run: longer than the grace, in which stopped work may end by
/// itself.
const SECOND_WITHIN_MS: u64 = 150;

/// Number of times that a round with a forced stop is played until the stop is in time.
const FORCED_TRIES: u32 = 5;

/// Checkers that require the proof of the end of all processes in the time of the stop. A receipt without this proof is
/// true, but not the best one.
const NEED_TIME: [&str; 2] = ["processes", "patient"];

/// Stops at random moments.
#[derive(Debug)]
#[must_use = "call run"]
pub struct RandomStops {
    seed: u64,
}

impl RandomStops {
    /// Uses the seed from the environment, or a new one.
    ///
    /// # Panics
    /// Panics if the seed in the environment is invalid.
    pub fn from_environment() -> Self {
        Self {
            seed: random::seed(),
        }
    }

    /// Performs this number of runs, and stops each of them. Some runs take place at the same time.
    ///
    /// # Panics
    /// Panics if the system provides no folder, port, store or thread, or if a run without a stop is broken.
    pub fn run(self, rounds: u32) -> CheckReport {
        let undisturbed = Arc::new(undisturbed());
        let length = undisturbed.over_at;
        let report = CheckReport::new(&"random moments".into(), rounds as usize);
        let report = Mutex::new(report);
        let next = AtomicU32::new(0);
        let work = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            for number in numbers.take_while(|number| *number < rounds) {
                let planned = self.planned(number, length);
                let (observation, violations) = played(&planned, &undisturbed);
                let failure = self.failure(number, &planned, violations);
                let mut report = report.lock();
                count(&mut report, &observation);
                report.count("random moment", &format!("random {}", planned.name()));
                report.checked(&observation);
                report.add(failure);
            }
        };
        std::thread::scope(|threads| {
            let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| threads.spawn(work)).collect();
            for worker in workers {
                worker.join().expect("a round breaks nothing but promises");
            }
        });
        let mut report = report.into_inner();
        let again = format!(
            "the same moments, over {length:?}, again: {SEED_VARIABLE}={}",
            self.seed
        );
        report.notes.push(again);
        report
    }

    /// The round with this number. Its moment and method do not depend on the number of rounds.
    fn planned(&self, number: u32, length: Duration) -> PlannedRound {
        let mut random = Random::new(self.seed.wrapping_add(u64::from(number)));
        // Some stops come just after the end of the run.
        let moment = random.before(length * 21 / 20);
        let method = method(&mut random);
        let stop_policy = match random.below(2) {
            0 => StopPolicy::Rollback,
            _ => StopPolicy::Keep,
        };
        PlannedRound {
            stop: Some((moment, method)),
            stop_policy,
        }
    }

    fn failure(&self, number: u32, planned: &PlannedRound, broken: Vec<Violation>) -> Failure {
        let moment = planned.stop.map(|(moment, _)| moment).unwrap_or_default();
        let place = format!("round {number}: {} after {moment:?}", planned.name());
        let replay = format!("{SEED_VARIABLE}={}", self.seed);
        Failure::of_moment(place, replay, broken)
    }
}

/// Plays a round, and checks the promises. A forced stop has little time to prove the end of the processes, so a round in
/// which it was not in time is played again.
fn played(
    planned: &PlannedRound,
    undisturbed: &Arc<RunObservation>,
) -> (RunObservation, Vec<Violation>) {
    let is_forced = matches!(planned.stop, Some((_, StopMethod::Force(_))));
    let mut tries = if is_forced { FORCED_TRIES } else { 1 };
    loop {
        let observation = RunObservation {
            undisturbed: Some(Arc::clone(undisturbed)),
            ..play(planned)
        };
        let violations = check::check(&observation);
        let needs_time = |violation: &Violation| NEED_TIME.contains(&violation.checker);
        let mut receipts = observation
            .snapshots
            .iter()
            .filter_map(|snapshot| snapshot.receipt.as_ref());
        // A receipt that claims too much is never a matter of time.
        let was_late = !violations.is_empty()
            && violations.iter().all(needs_time)
            && receipts.all(|receipt| !receipt.quiet());
        tries -= 1;
        if !was_late || tries == 0 {
            return (observation, violations);
        }
    }
}

fn method(random: &mut Random) -> StopMethod {
    match random.below(8) {
        0 | 1 => StopMethod::USER,
        2 => StopMethod::Stop(Extent::Session, CauseKind::Superseded),
        3 => StopMethod::Stop(Extent::Process, CauseKind::Shutdown),
        4 => StopMethod::Drop,
        5 => StopMethod::Deadline,
        6 => StopMethod::Force(random.below(SECOND_WITHIN_MS) as u32),
        _ => StopMethod::Wider(random.below(SECOND_WITHIN_MS) as u32),
    }
}

/// Plays several runs without a stop, and returns the shortest of them.
fn undisturbed() -> RunObservation {
    let runs = (0..MEASURED).map(|_| {
        let observation = play(&PlannedRound {
            stop: None,
            stop_policy: StopPolicy::Rollback,
        });
        let violations = check::check(&observation);
        assert!(violations.is_empty(), "without any stop: {violations:#?}");
        observation
    });
    let shortest = runs.min_by_key(|run| run.over_at);
    shortest.unwrap_or_default()
}

/// Adds the figures of a round to the report.
fn count(report: &mut CheckReport, round: &RunObservation) {
    let last = round.turns.iter().flatten().last();
    let is_over = last.is_some_and(|turn| turn.stop_reason == StopReason::Completed);
    *report.figure("stops after the end") += u64::from(is_over);
    let took = |stop: &ObservedStop| Some(stop.answer.as_ref()?.at.saturating_sub(stop.at));
    let longest = round.all_stops().filter_map(took).max().unwrap_or_default();
    let longest_ms = report.figure("ms until the latest answer");
    *longest_ms = (*longest_ms).max(longest.as_millis() as u64);
    let receipts = round
        .snapshots
        .iter()
        .filter_map(|snapshot| snapshot.receipt.as_ref());
    for item in receipts.flat_map(|receipt| receipt.items()) {
        match item.state {
            ItemState::Stopped { .. } => *report.figure("items stopped") += 1,
            ItemState::Unknown { .. } => *report.figure("items unknown") += 1,
            _ => {}
        }
    }
}
