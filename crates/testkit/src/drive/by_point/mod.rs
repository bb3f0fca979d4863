//! Driver by point: runs a scenario once to find its points, and then once for each point and each method of a stop. A
//! point is a numbered moment of a run, such as an event or the time between two polls of tasks.

mod case;
mod session;
mod turns;

pub(crate) use case::{Case, play, play_next, session_id};

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_core::{CauseKind, Extent};
use allstop_log::MemoryLog;
use allstop_session::FollowUp;

use crate::check;
use crate::observe::{Point, RunObservation};
use crate::report::{self, CaseName, CheckReport, Failure, VARIABLE};
use crate::stage::Scenario;
use crate::stop_method::{CAUSES, StopMethod, StoreFault};

/// Distances between the first and a second stop, in points. The second stop comes immediately, in the middle of the
/// first stop, while the ending of the turn is written, or after that.
const SECOND_AFTER: [u32; 4] = [1, 3, 7, 12];

/// Number of neighbouring points that together try all rarer methods. Each of these points tries a part of the rarer
/// methods.
const RARE_WAYS_SHARED_BY: usize = 2;

/// Number of rarer methods at a point that only reports an event which happened elsewhere.
const RARE_WAYS_BETWEEN: usize = 2;

/// Number of common methods and number of rarer methods at a point of a session at which an event itself happens.
const SESSION_WAYS_APART: (usize, usize) = (5, 2);

/// Number of common methods and number of rarer methods at all other points of a session.
const SESSION_WAYS_BETWEEN: (usize, usize) = (1, 1);

/// Advice for a scenario whose runs differ.
const ALL_THE_SAME: &str = "Whatever differs from run to run cannot be explored: threads (tokio::fs and spawn_blocking \
     have some), real time, random numbers, the order of a HashMap";

/// Explores a scenario: runs the scenario once undisturbed to find its points, and then once for each point and each
/// method of a stop.
///
/// ```
/// use allstop_agent::Agent;
/// use allstop_model::Reply;
/// use allstop_testkit::explore::{Scenario, explore};
///
/// let scenario = Scenario::new("greeting", |stage| {
///     let model = stage.model(vec![Reply::text("Hello.")]);
///     stage.agent(Agent::new(model), "Hi.")
/// });
/// explore(&scenario).assert_clean();
/// ```
///
/// # Panics
/// Panics if two runs of the scenario differ, because the numbers of its points then have no meaning.
pub fn explore(scenario: &Scenario) -> CheckReport {
    Exploration::of(scenario).run()
}

/// An exploration with options.
#[derive(Debug)]
#[must_use = "call run"]
pub struct Exploration<'a> {
    scenario: &'a Scenario,
    dense: bool,
    only: Option<StopMethod>,
}

impl<'a> Exploration<'a> {
    /// Explores this scenario in the short form, which is fast enough for every run of the tests.
    pub fn of(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            dense: false,
            only: None,
        }
    }

    /// Selects the long form, which tries every method also at the polls, and tries a second stop at every later point.
    pub fn dense(mut self) -> Self {
        self.dense = true;
        self
    }

    /// Uses only this method at each point.
    pub fn only(mut self, method: StopMethod) -> Self {
        self.only = Some(method);
        self
    }

    /// Runs the exploration.
    ///
    /// # Panics
    /// Panics if two runs of the scenario differ, or if the environment names an invalid case.
    pub fn run(self) -> CheckReport {
        if let Some(case) = report::asked_for() {
            return self.run_only(&case);
        }
        let undisturbed = Arc::new(undisturbed(self.scenario));
        let name = self.scenario.name();
        let violations = check::check(&undisturbed);
        let mut report = CheckReport::of_undisturbed(name, &undisturbed, violations);
        for point in &undisturbed.points {
            for method in self.methods(point, &undisturbed) {
                self.run_case(point, method, &undisturbed, &mut report);
            }
        }
        report
    }

    fn run_only(&self, case: &CaseName) -> CheckReport {
        let name = self.scenario.name();
        // Cases with a kill belong to the function `explore_kills`.
        if !report::is_asked_for(name) || case.method == StopMethod::Kill {
            report::print_skipped(name);
            return CheckReport::new(name, 0);
        }
        let undisturbed = Arc::new(undisturbed(self.scenario));
        let points = undisturbed.points.len();
        let mut report = CheckReport::new(name, points);
        let Some(point) = undisturbed.points.get(case.point as usize) else {
            panic!("{VARIABLE}={case}: there is no such point, {name} has {points} of them now");
        };
        self.run_case(point, case.method, &undisturbed, &mut report);
        assert!(
            report.cases > 0,
            "{VARIABLE}={case}: nothing is there that could be stopped in that way"
        );
        report
    }

    fn run_case(
        &self,
        point: &Point,
        method: StopMethod,
        undisturbed: &Arc<RunObservation>,
        report: &mut CheckReport,
    ) {
        let played = play(&Case {
            scenario: self.scenario,
            log: Arc::new(MemoryLog::new()),
            stop: Some((point.number, method)),
            journal: None,
            undisturbed: Some(Arc::clone(undisturbed)),
        });
        let Some(observation) = played else {
            return; // This method cannot stop anything at this point.
        };
        let name = CaseName {
            scenario: self.scenario.name().to_string(),
            point: point.number,
            method,
        };
        report.count(point.event, &method);
        report.checked(&observation);
        let violations = check::check(&observation);
        report.add(Failure::of_case(
            name,
            point,
            &observation.points,
            violations,
        ));
    }

    /// Methods that are tried at a point.
    fn methods(&self, point: &Point, undisturbed: &RunObservation) -> Vec<StopMethod> {
        if let Some(method) = self.only {
            let is_store_fault = matches!(method, StopMethod::Store(_));
            return if is_store_fault && !point.is_append() {
                Vec::new()
            } else {
                vec![method]
            };
        }
        let mut methods = if undisturbed.session.is_some() {
            of_session(point, self.dense)
        } else {
            self.of_run(point, undisturbed)
        };
        if point.is_append() {
            methods.extend(StoreFault::ALL.map(StopMethod::Store));
        }
        methods
    }

    /// Methods that are tried at a point of a run, without the faults of the store.
    fn of_run(&self, point: &Point, undisturbed: &RunObservation) -> Vec<StopMethod> {
        let common = [
            StopMethod::Drop,
            StopMethod::Stop(Extent::Process, CauseKind::Shutdown),
            StopMethod::Stop(Extent::Call, CauseKind::User),
            StopMethod::Force(2),
        ];
        let mut methods = vec![StopMethod::USER];
        if self.dense || point.is_semantic() {
            methods.extend(common);
        } else {
            methods.extend(common.iter().cycle().nth(point.number as usize));
        }
        let first_of_its_time = undisturbed
            .points
            .iter()
            .find(|other| other.at == point.at)
            .is_some_and(|first| first.number == point.number);
        if first_of_its_time {
            methods.push(StopMethod::Deadline);
        }
        let left = undisturbed.points.len() as u32 - point.number;
        let later: Vec<u32> = if self.dense {
            (1..=left.max(12)).collect()
        } else {
            SECOND_AFTER.to_vec()
        };
        let rare = CAUSES
            .map(|cause| StopMethod::Stop(Extent::Turn, cause))
            .into_iter()
            .chain([StopMethod::Stop(Extent::Session, CauseKind::User)])
            .chain(later.into_iter().flat_map(|after| {
                [
                    StopMethod::Again(after),
                    StopMethod::Wider(after),
                    StopMethod::Force(after),
                ]
            }));
        // Each point gets a different part of the methods, so that neighbouring points together try all of them.
        let every = match (self.dense, point.is_apart(), point.is_semantic()) {
            (true, ..) => 1,
            (_, true, _) => RARE_WAYS_SHARED_BY,
            (_, _, true) => rare.clone().count().div_ceil(RARE_WAYS_BETWEEN),
            // A poll gets only the common methods.
            _ => return methods,
        };
        methods.extend(rare.skip(point.number as usize % every).step_by(every));
        // A second run with the same method would find nothing new.
        let mut seen = BTreeSet::new();
        methods.retain(|method| seen.insert(method.to_string()));
        methods
    }
}

/// Methods that are tried at a point of a session. The dense form tries all methods. The other form tries a part of the
/// methods at each point, so that neighbouring points together try all of them.
fn of_session(point: &Point, dense: bool) -> Vec<StopMethod> {
    let user = |extent| StopMethod::Stop(extent, CauseKind::User);
    let often = [
        StopMethod::USER,
        StopMethod::Send(FollowUp::Interrupt),
        StopMethod::Send(FollowUp::Replace),
        StopMethod::Send(FollowUp::Steer),
        user(Extent::Call),
        user(Extent::TurnAndBackground),
        StopMethod::Stop(Extent::Process, CauseKind::Shutdown),
        StopMethod::Drop,
        StopMethod::Close,
        user(Extent::Subtree),
    ];
    // In this process, a session is never stopped because of a lost lease (right to write), because the next owner of
    // the session would run in another process.
    let causes = CAUSES
        .into_iter()
        .filter(|cause| *cause != CauseKind::LeaseLost);
    let later = |after| {
        [
            StopMethod::Again(after),
            StopMethod::Wider(after),
            StopMethod::Force(after),
        ]
    };
    let rare = [
        StopMethod::Send(FollowUp::Reject),
        StopMethod::Send(FollowUp::Enqueue),
        StopMethod::Undo,
        user(Extent::Session),
    ];
    let rare = rare.into_iter();
    let rare: Vec<StopMethod> = rare
        .chain(SECOND_AFTER.into_iter().flat_map(later))
        .chain(causes.map(|cause| StopMethod::Stop(Extent::Turn, cause)))
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

/// Plays a scenario twice without a stop, and checks that both runs are equal.
///
/// # Panics
/// Panics if the runs differ.
pub(crate) fn undisturbed(scenario: &Scenario) -> RunObservation {
    let play = || {
        play(&Case {
            scenario,
            log: Arc::new(MemoryLog::new()),
            stop: None,
            journal: None,
            undisturbed: None,
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
