//! All points of a scenario, all ways to stop at each.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_core::{CauseKind, Extent};
use allstop_log::MemoryLog;
use allstop_session::FollowUp;

use super::aftermath::Aftermath;
use super::case::{self, Case};
use super::point::Point;
use super::replay::{self, CaseName, VARIABLE};
use super::report::{Failure, Report};
use super::scenario::Scenario;
use super::store::StoreFault;
use super::way::{CAUSES, Way};
use crate::check::{self, Undisturbed};

/// How much later a second stop falls, in points: at once, in the middle of the first one's ladder, when the ending is
/// written, and thereafter.
const SECOND_AFTER: [u32; 4] = [1, 3, 7, 12];

/// How many points share the rarer ways among them.
const RARE_WAYS_SHARED_BY: usize = 2;

/// How many of the rarer ways are tried at a point that lies close between others.
const RARE_WAYS_BETWEEN: usize = 2;

/// How many of the common and of the rarer ways are tried at a point of a session where something of its own happens.
const SESSION_WAYS_APART: (usize, usize) = (5, 2);

/// The same at all others.
const SESSION_WAYS_BETWEEN: (usize, usize) = (1, 1);

/// What to do where runs differ.
const ALL_THE_SAME: &str = "Whatever differs from run to run cannot be explored: threads (tokio::fs and spawn_blocking \
     have some), real time, random numbers, the order of a HashMap";

/// Explores a scenario: runs it once undisturbed for its points, and then once for each point and each way to stop.
///
/// ```
/// use allstop_agent::Agent;
/// use allstop_model::Reply;
/// use allstop_testkit::explore::{Scenario, explore};
///
/// let scenario = Scenario::new("greeting", |stage| {
///     let model = stage.model(vec![Reply::text("Hello.")]);
///     stage.agent(Agent::builder(model), "Hi.")
/// });
/// explore(&scenario).assert_clean();
/// ```
///
/// # Panics
/// If the scenario is not the same in each run, so that its points mean nothing.
pub fn explore(scenario: &Scenario) -> Report {
    Exploration::of(scenario).run()
}

/// An exploration with choices.
#[derive(Debug)]
#[must_use = "call run"]
pub struct Exploration<'a> {
    scenario: &'a Scenario,
    dense: bool,
    only: Option<Way>,
}

impl<'a> Exploration<'a> {
    /// Of this scenario, in the form that is fast enough for every run of the tests.
    pub fn of(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            dense: false,
            only: None,
        }
    }

    /// The long form: every way at the polls too, and a second stop at each point after the first.
    pub fn dense(mut self) -> Self {
        self.dense = true;
        self
    }

    /// Only this way to stop, at each point.
    pub fn only(mut self, way: Way) -> Self {
        self.only = Some(way);
        self
    }

    /// Runs it.
    ///
    /// # Panics
    /// If the scenario is not the same in each run, or the environment asks for a case that is none.
    pub fn run(self) -> Report {
        if let Some(case) = replay::asked_for() {
            return self.run_only(&case);
        }
        let undisturbed = undisturbed(self.scenario);
        let mut report = Report::new(self.scenario.name(), undisturbed.points.len());
        report.add(Failure::of_undisturbed(check::check(
            &undisturbed,
            &undisturbed,
        )));
        for point in &undisturbed.points {
            for way in self.ways(point, &undisturbed) {
                self.run_case(point, way, &undisturbed, &mut report);
            }
        }
        report
    }

    fn run_only(&self, case: &CaseName) -> Report {
        let name = self.scenario.name();
        // Kills are explored by explore_kills.
        if !replay::is_asked_for(self.scenario) || case.way == Way::Kill {
            replay::say_skipped(name);
            return Report::new(name, 0);
        }
        let undisturbed = undisturbed(self.scenario);
        let points = undisturbed.points.len();
        let mut report = Report::new(name, points);
        let Some(point) = undisturbed.points.get(case.point as usize) else {
            panic!("{VARIABLE}={case}: there is no such point, {name} has {points} of them now");
        };
        self.run_case(point, case.way, &undisturbed, &mut report);
        assert!(
            report.cases > 0,
            "{VARIABLE}={case}: nothing is there that could be stopped in that way"
        );
        report
    }

    fn run_case(&self, point: &Point, way: Way, undisturbed: &Undisturbed, report: &mut Report) {
        let played = case::play(&Case {
            scenario: self.scenario,
            log: Arc::new(MemoryLog::new()),
            stop: Some((point, way)),
            told: None,
        });
        let Some(aftermath) = played else {
            return; // Nothing there could be stopped in that way.
        };
        // A run that was another one before its point breaks much that has nothing to do with the stop.
        let differs = same_until(point, &aftermath, undisturbed);
        let broken = check::check(&aftermath, undisturbed);
        let violations = differs.into_iter().chain(broken).collect();
        report.count(point, way);
        let name = CaseName {
            scenario: self.scenario.name().to_string(),
            point: point.number,
            way,
        };
        report.add(Failure::of_case(name, point, &aftermath, violations));
    }

    /// The ways that are tried at a point.
    fn ways(&self, point: &Point, undisturbed: &Undisturbed) -> Vec<Way> {
        if let Some(way) = self.only {
            let is_store_fault = matches!(way, Way::Store(_));
            return if is_store_fault && !point.is_append() {
                Vec::new()
            } else {
                vec![way]
            };
        }
        let mut ways = if undisturbed.session.is_some() {
            of_session(point, self.dense)
        } else {
            self.of_run(point, undisturbed)
        };
        if point.is_append() {
            ways.extend(StoreFault::ALL.map(Way::Store));
        }
        ways
    }

    /// The ways that are tried at a point of a run, but for faults of the store.
    fn of_run(&self, point: &Point, undisturbed: &Undisturbed) -> Vec<Way> {
        let common = [
            Way::Drop,
            Way::Stop(Extent::Process, CauseKind::Shutdown),
            Way::Stop(Extent::Call, CauseKind::User),
            Way::Force(2),
        ];
        let mut ways = vec![Way::USER];
        if self.dense || point.is_semantic() {
            ways.extend(common);
        } else {
            ways.extend(common.iter().cycle().nth(point.number as usize));
        }
        let first_of_its_time = undisturbed
            .points
            .iter()
            .find(|other| other.at == point.at)
            .is_some_and(|first| first.number == point.number);
        if first_of_its_time {
            ways.push(Way::Deadline);
        }
        let left = undisturbed.points.len() as u32 - point.number;
        let later: Vec<u32> = if self.dense {
            (1..=left.max(12)).collect()
        } else {
            SECOND_AFTER.to_vec()
        };
        let rare = CAUSES
            .map(|cause| Way::Stop(Extent::Turn, cause))
            .into_iter()
            .chain([Way::Stop(Extent::Session, CauseKind::User)])
            .chain(
                later
                    .into_iter()
                    .flat_map(|after| [Way::Again(after), Way::Wider(after), Way::Force(after)]),
            );
        // Each point gets another share of them, so that neighbours make up for what one leaves out.
        let every = match (self.dense, point.is_apart(), point.is_semantic()) {
            (true, ..) => 1,
            (_, true, _) => RARE_WAYS_SHARED_BY,
            (_, _, true) => rare.clone().count().div_ceil(RARE_WAYS_BETWEEN),
            // A poll has the common ones.
            _ => return ways,
        };
        ways.extend(rare.skip(point.number as usize % every).step_by(every));
        // The same way twice would only be counted twice.
        let mut seen = BTreeSet::new();
        ways.retain(|way| seen.insert(way.to_string()));
        ways
    }
}

/// The ways that are tried at a point of a session: all of them in the dense form, else a share of them, so that
/// neighbours make up for what one leaves out.
fn of_session(point: &Point, dense: bool) -> Vec<Way> {
    let user = |extent| Way::Stop(extent, CauseKind::User);
    let often = [
        Way::USER,
        Way::Send(FollowUp::Interrupt),
        Way::Send(FollowUp::Replace),
        Way::Send(FollowUp::Steer),
        user(Extent::Call),
        user(Extent::TurnAndBackground),
        Way::Stop(Extent::Process, CauseKind::Shutdown),
        Way::Drop,
        Way::Close,
        user(Extent::Subtree),
    ];
    // Nobody brings a lost lease to a session: whoever takes over has a process of its own.
    let causes = CAUSES
        .into_iter()
        .filter(|cause| *cause != CauseKind::LeaseLost);
    let later = |after| [Way::Again(after), Way::Wider(after), Way::Force(after)];
    let rare = [
        Way::Send(FollowUp::Reject),
        Way::Send(FollowUp::Enqueue),
        Way::Undo,
        user(Extent::Session),
    ];
    let rare = rare.into_iter();
    let rare: Vec<Way> = rare
        .chain(SECOND_AFTER.into_iter().flat_map(later))
        .chain(causes.map(|cause| Way::Stop(Extent::Turn, cause)))
        .collect();
    let number = point.number as usize;
    let (common, uncommon) = match (dense, point.is_apart()) {
        (true, _) => (often.len(), rare.len()),
        (_, true) => SESSION_WAYS_APART,
        _ => SESSION_WAYS_BETWEEN,
    };
    let often = often.iter().cycle().skip(number * common).take(common);
    let rare = rare.iter().cycle().skip(number * uncommon).take(uncommon);
    often.chain(rare).copied().collect()
}

/// Runs a scenario twice without a stop: it must be the same run.
///
/// # Panics
/// If it is not.
pub(crate) fn undisturbed(scenario: &Scenario) -> Aftermath {
    let play = || {
        let log = Arc::new(MemoryLog::new());
        case::play(&Case {
            scenario,
            log,
            stop: None,
            told: None,
        })
        .expect("without a stop there is nothing that could not be done")
    };
    let (first, second) = (play(), play());
    let same = first
        .points
        .iter()
        .zip(&second.points)
        .find(|(a, b)| a != b);
    if let Some((a, b)) = same {
        panic!(
            "{}: two runs differ: {a} in one, {b} in the other. {ALL_THE_SAME}",
            scenario.name()
        );
    }
    assert_eq!(
        first.points.len(),
        second.points.len(),
        "{}: two runs differ in their length. {ALL_THE_SAME}",
        scenario.name()
    );
    first
}

/// Runs a scenario once, disturbed at this point in this way.
#[cfg(test)]
pub(crate) fn disturbed(scenario: &Scenario, point: u32, way: Way) -> Aftermath {
    let points = undisturbed(scenario).points;
    let point = points.get(point as usize).expect("there is such a point");
    let played = case::play(&Case {
        scenario,
        log: Arc::new(MemoryLog::new()),
        stop: Some((point, way)),
        told: None,
    });
    played.expect("it can be done there")
}

/// Up to its point a stopped run is the undisturbed one.
fn same_until(
    point: &Point,
    aftermath: &Aftermath,
    undisturbed: &Undisturbed,
) -> Option<check::Violation> {
    // A deadline is a timer, whose task is polled too.
    if aftermath.deadline.is_some() {
        return None;
    }
    let until = point.number as usize;
    let pairs = aftermath
        .points
        .iter()
        .zip(&undisturbed.points)
        .take(until + 1);
    let (here, there) = pairs.into_iter().find(|(here, there)| here != there)?;
    Some(check::Violation {
        checker: "repeatable",
        invariant: check::Invariant::NoClaimBeyondVerified,
        class: check::FailureClass::FalseReceipt,
        what: format!("the run is not repeatable: {here} in this one, {there} in the first"),
    })
}
