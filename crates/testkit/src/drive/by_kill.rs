//! Driver by kill (`kill -9`): a separate process plays the scenario with a store on disk, and kills itself at the
//! chosen point of the run. The process that started this process then examines the store.
//!
//! A killed run equals the undisturbed run (the same run without a kill) up to the point of the kill. Therefore the
//! expected records in the store are known exactly.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_log::{Log, LogError, SessionWriter, SqliteLog};
use futures::executor::block_on;

use super::by_point::{Case, play, play_next, session_id, undisturbed};
use super::read_all;
use crate::FaultyLog;
use crate::check;
use crate::observe::{DeliveryJournal, ObservedKill, Point, RunObservation};
use crate::report::{self, CaseName, CheckReport, Failure, VARIABLE};
use crate::stage::Scenario;
use crate::stop_method::StopMethod;

/// Environment variable with the folder of the store. The variable is set only for a process that is to kill itself.
const STORE_VARIABLE: &str = "ALLSTOP_EXPLORE_STORE";

/// Maximum number of bytes of a process's output in the report. The report contains output only if the process was not
/// killed as expected.
const SAID_BYTES_MAX: usize = 2000;

/// Kills a process at every semantic point of a scenario, and checks the store that each process leaves on disk. A
/// point is semantic unless it is only a poll of a task. If the scenario has more than `kills_max` such points, the
/// function uses only `kills_max` of them, spread evenly over the run. `again` creates the command that starts this
/// exploration in a new process. In a test, this is the test binary with the name of the test. In the new process this
/// function does not return.
///
/// # Panics
/// Panics if no process can be started, or no folder can be created for a store.
pub fn explore_kills(
    scenario: &Scenario,
    kills_max: usize,
    again: impl Fn() -> Command,
) -> CheckReport {
    let only = report::asked_for().filter(|_| report::is_asked_for(scenario.name()));
    if let Some(case) = &only
        && case.method == StopMethod::Kill
        && store_folder().is_some()
    {
        play_in_this_process(scenario, case.point);
    }
    let undisturbed = Arc::new(undisturbed(scenario));
    let mut report = CheckReport::new(scenario.name(), undisturbed.points.len());
    if report::asked_for()
        .is_some_and(|case| Some(&case) != only.as_ref() || case.method != StopMethod::Kill)
    {
        report::print_skipped(scenario.name());
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
            method: StopMethod::Kill,
        };
        let observation = kill_at(scenario, &undisturbed, &case, again());
        report.count(point.event, &StopMethod::Kill);
        report.checked(&observation);
        let violations = check::check(&observation);
        report.add(Failure::of_case(
            case,
            point,
            &undisturbed.points,
            violations,
        ));
    }
    report
}

/// Returns at most `len_max` of the semantic points, spread evenly.
fn spread(points: &[Point], len_max: usize) -> Vec<&Point> {
    let points: Vec<&Point> = points.iter().filter(|point| point.is_semantic()).collect();
    let len = points.len().min(len_max);
    (0..len)
        .filter_map(|at| points.get(at * points.len() / len).copied())
        .collect()
}

/// Runs one process that is killed, and creates an observation from the store that remains.
fn kill_at(
    scenario: &Scenario,
    undisturbed: &Arc<RunObservation>,
    case: &CaseName,
    mut again: Command,
) -> RunObservation {
    let folder = tempfile::tempdir().expect("a folder for a store");
    let ended = again
        .env(VARIABLE, case.to_string())
        .env(STORE_VARIABLE, folder.path())
        // Files that the scenario creates are removed together with the store.
        .env("TMPDIR", folder.path())
        .output()
        .expect("this program can be started again");
    let observed = if was_killed(ended.status) {
        examine_store(folder.path(), undisturbed, scenario, case.point)
    } else {
        let said = String::from_utf8_lossy(&ended.stderr);
        let from = said.floor_char_boundary(said.len().saturating_sub(SAID_BYTES_MAX));
        let said = said.get(from..).unwrap_or_default();
        Err(format!(
            "the process was to be killed: {}: {said}",
            ended.status
        ))
    };
    observed.unwrap_or_else(|failure| RunObservation {
        kill: Some(ObservedKill {
            failure: Some(failure),
            ..ObservedKill::default()
        }),
        ..RunObservation::default()
    })
}

fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal() == Some(rustix::process::Signal::KILL.as_raw())
}

/// Reads the store, resumes its session, and sends the session the next message.
fn examine_store(
    folder: &Path,
    undisturbed: &Arc<RunObservation>,
    scenario: &Scenario,
    point: u32,
) -> Result<RunObservation, String> {
    let store = open_store(folder).map_err(|error| error.to_string())?;
    let log: Arc<dyn Log> = Arc::clone(&store) as _;
    let records = block_on(read_all(&*log, &session_id()));
    let now = Timestamp::from_unix_ms(1);
    let resumed = block_on(SessionWriter::resume(Arc::clone(&log), session_id(), now))
        .map_err(|error| format!("the session cannot be resumed: {error}"))?;
    let (state, recovered) = (resumed.state().clone(), resumed.recovered().to_vec());
    drop(resumed);
    let next = play_next(scenario, &(Arc::new(FaultyLog::immediate(store)) as _));
    // A killed run equals the undisturbed run up to the point of the kill.
    let passed = undisturbed.points.iter().take(point as usize + 1);
    Ok(RunObservation {
        undisturbed: Some(Arc::clone(undisturbed)),
        point: Some(point),
        points: passed.cloned().collect(),
        settings: undisturbed.settings.clone(),
        records_before: undisturbed.records_before,
        records,
        state: Some(state),
        next,
        next_must: undisturbed.next_must,
        records_after_next: block_on(read_all(&*log, &session_id())),
        delivered_facts: Some(DeliveryJournal::read(folder)?),
        kill: Some(ObservedKill {
            recovered,
            failure: None,
        }),
        ..RunObservation::default()
    })
}

/// Plays the scenario with the store from the environment variable, up to the point at which this process kills itself.
///
/// # Panics
/// Panics if the run does not reach the point, or if the environment names no store.
fn play_in_this_process(scenario: &Scenario, point: u32) -> ! {
    let folder = store_folder().expect("the one who starts this names a store");
    let log = open_store(&folder).expect("a new store");
    drop(play(&Case {
        scenario,
        log: Arc::new(FaultyLog::immediate(log)),
        stop: Some((point, StopMethod::Kill)),
        undisturbed: None,
        journal: Some(Arc::new(DeliveryJournal::begin(&folder))),
    }));
    panic!("the scenario was over before point {point}");
}

/// Folder of the store for the run in this process, which is killed; `None` if this process is not to be killed.
fn store_folder() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "one process tells another where its store is"
    )]
    let folder = std::env::var(STORE_VARIABLE).ok()?;
    Some(folder.into())
}

fn open_store(folder: &Path) -> Result<Arc<SqliteLog>, LogError> {
    Ok(Arc::new(block_on(SqliteLog::open(
        folder.join("sessions.db"),
    ))?))
}
