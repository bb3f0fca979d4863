//! `kill -9`: a process of its own plays the scenario on a store on disk and kills itself at the point; whoever started
//! it looks at what the store says.
//!
//! A killed run is the undisturbed one up to its point, so it is known to the record what must be in the store then.

mod checks;
mod sessions;
mod store;
mod told;

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::Timestamp;
use allstop_log::{Log, SessionStream};
use futures::executor::block_on;

use super::case::{self, Case};
use super::exploration::undisturbed;
use super::point::{Moment, Point};
use super::replay::{self, CaseName, VARIABLE};
use super::report::{Failure, Report};
use super::scenario::Scenario;
use super::way::Way;
use crate::check::{FailureClass, Invariant, Undisturbed, Violation};

use store::Answered;

pub use checks::{KILL_CHECKERS, KillChecker, Killed};
pub(crate) use told::Notebook;
pub use told::{Told, ToldOutcome};

/// The environment variable that names the folder of the store for a process that is to kill itself.
const STORE_VARIABLE: &str = "ALLSTOP_EXPLORE_STORE";

/// How much of what a process said is shown if it was not killed as it should.
const SAID_BYTES_MAX: usize = 2000;

/// Kills a process at every semantic point of a scenario, and checks what each left on disk; where those are more than
/// `kills_max`, at so many that lie evenly over all of the run. `again` makes the command that starts this very
/// exploration in a new process: in a test, the test binary with the test's own name. There this does not return.
///
/// # Panics
/// If no process can be started, or no folder made for a store.
pub fn explore_kills(scenario: &Scenario, kills_max: usize, again: impl Fn() -> Command) -> Report {
    let only = replay::asked_for().filter(|_| replay::is_asked_for(scenario));
    if let Some(case) = &only
        && case.way == Way::Kill
        && store::from_environment().is_some()
    {
        play_in_this_process(scenario, &at(case.point));
    }
    let undisturbed = undisturbed(scenario);
    let mut report = Report::new(scenario.name(), undisturbed.points.len());
    if replay::asked_for().is_some_and(|case| Some(&case) != only.as_ref() || case.way != Way::Kill)
    {
        replay::say_skipped(scenario.name());
        return report;
    }
    let points: Vec<&Point> = match &only {
        Some(case) => undisturbed
            .points
            .get(case.point as usize)
            .into_iter()
            .collect(),
        None => spread(&undisturbed.points, kills_max),
    };
    for point in points {
        let case = CaseName {
            scenario: scenario.name().to_string(),
            point: point.number,
            way: Way::Kill,
        };
        let violations = kill_at(scenario, &undisturbed, &case, again());
        report.count(point, Way::Kill);
        report.add(Failure::of_case(case, point, &undisturbed, violations));
    }
    report
}

/// So many of the semantic points, evenly.
fn spread(points: &[Point], len_max: usize) -> Vec<&Point> {
    let points: Vec<&Point> = points.iter().filter(|point| point.is_semantic()).collect();
    let len = points.len().min(len_max);
    (0..len)
        .filter_map(|at| points.get(at * points.len() / len).copied())
        .collect()
}

/// One process, killed, and what it left.
fn kill_at(
    scenario: &Scenario,
    undisturbed: &Undisturbed,
    case: &CaseName,
    mut again: Command,
) -> Vec<Violation> {
    let folder = tempfile::tempdir().expect("a folder for a store");
    let ended = again
        .env(VARIABLE, case.to_string())
        .env(STORE_VARIABLE, folder.path())
        // What the scenario makes for itself goes away with the store.
        .env("TMPDIR", folder.path())
        .output()
        .expect("this program can be started again");
    if !was_killed(ended.status) {
        let said = String::from_utf8_lossy(&ended.stderr);
        let from = said.floor_char_boundary(said.len().saturating_sub(SAID_BYTES_MAX));
        let said = said.get(from..).unwrap_or_default();
        return vec![Violation {
            checker: "kill",
            invariant: Invariant::NoHalfTurn,
            class: FailureClass::CorruptHistory,
            what: format!("the process was to be killed: {}: {said}", ended.status),
        }];
    }
    match killed(folder.path(), undisturbed, scenario, case.point) {
        Ok(killed) => checks::check(&killed),
        Err(what) => vec![checks::unreadable(what)],
    }
}

fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal() == Some(rustix::process::Signal::KILL.as_raw())
}

/// What the store holds, what resuming makes of it, and how the next message ends.
fn killed(
    folder: &Path,
    undisturbed: &Undisturbed,
    scenario: &Scenario,
    point: u32,
) -> Result<Killed, String> {
    let store = store::open(folder).map_err(|error| error.to_string())?;
    let log: Arc<dyn Log> = Arc::clone(&store) as _;
    let records = block_on(case::read_all(&*log));
    let now = Timestamp::from_unix_ms(1);
    let resumed = block_on(SessionStream::resume(
        Arc::clone(&log),
        case::session_id(),
        now,
    ))
    .map_err(|error| format!("the session cannot be resumed: {error}"))?;
    let (state, recovered) = (resumed.state().clone(), resumed.recovered().to_vec());
    drop(resumed);
    let next = case::play_next(scenario, &(Arc::new(Answered(store)) as _));
    Ok(Killed {
        point,
        undisturbed: undisturbed.clone(),
        told: Told::read(folder)?,
        records,
        recovered,
        state,
        next,
        records_after_next: block_on(case::read_all(&*log)),
    })
}

/// Plays the scenario on the store that the environment names, up to the point at which this process ends.
///
/// # Panics
/// If the point was not reached, or there is no store to play on.
fn play_in_this_process(scenario: &Scenario, point: &Point) -> ! {
    let folder = store::from_environment().expect("the one who starts this names a store");
    let log = store::open(&folder).expect("a new store");
    drop(case::play(&Case {
        scenario,
        log: Arc::new(Answered(log)),
        stop: Some((point, Way::Kill)),
        told: Some(Arc::new(Notebook::begin(&folder))),
    }));
    panic!("the scenario was over before point {}", point.number);
}

/// The point of this number: what else is to be known of it is not known before it is reached.
fn at(number: u32) -> Point {
    Point {
        number,
        what: "kill",
        of: "".into(),
        moment: Moment::Inside,
        at: Duration::ZERO,
    }
}

/// Ends this process as a power cut would.
pub(crate) fn this_process() -> bool {
    let killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.is_ok()
}
