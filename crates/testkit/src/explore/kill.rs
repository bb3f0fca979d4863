//! `kill -9`: a process of its own plays the scenario on a store on disk and kills itself at the point; whoever started
//! it looks at what the store says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, SessionStream,
    SqliteLog, StreamLock, StreamName, Version,
};
use futures::executor::block_on;

use super::case::{self, Case};
use super::exploration::undisturbed;
use super::point::Point;
use super::replay::{CaseName, VARIABLE};
use super::report::{Failure, Report};
use super::scenario::Scenario;
use super::way::Way;
use crate::check::{self, FailureClass, Invariant, Undisturbed, Violation};

/// The environment variable that names the folder of the store for a process that is to kill itself.
const STORE_VARIABLE: &str = "ALLSTOP_EXPLORE_STORE";

/// Ends this process as a power cut would.
pub(crate) fn this_process() -> bool {
    let killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.is_ok()
}

/// Kills a process at every semantic point of a scenario, and checks what each left on disk. `again` makes the command
/// that starts this very exploration in a new process: in a test, the test binary with the test's own name.
///
/// # Panics
/// If no process can be started, or no folder made for a store.
pub fn explore_kills(scenario: &Scenario, again: impl Fn() -> Command) -> Report {
    let undisturbed = undisturbed(scenario);
    let mut report = Report::new(scenario.name(), undisturbed.points.len());
    for point in undisturbed
        .points
        .iter()
        .filter(|point| point.is_semantic())
    {
        let name = CaseName {
            scenario: scenario.name().to_string(),
            point: point.number,
            way: Way::Kill,
        };
        let folder = tempfile::tempdir().expect("a folder for a store");
        let status = again()
            .env(VARIABLE, name.to_string())
            .env(STORE_VARIABLE, folder.path())
            .output()
            .expect("this program can be started again")
            .status;
        let mut violations = Vec::new();
        if !was_killed(status) {
            violations.push(wrong(
                "kill",
                format!("the process was to be killed: {status}"),
            ));
        } else if let Err(what) = look(folder.path(), &undisturbed, scenario) {
            violations.push(wrong("recovery_after_kill", what));
        }
        report.count(point, Way::Kill);
        report.add(Failure::of_case(name, point, &undisturbed, violations));
    }
    report
}

fn wrong(checker: &'static str, what: String) -> Violation {
    Violation {
        checker,
        invariant: Invariant::NoHalfTurn,
        class: FailureClass::CorruptHistory,
        what,
    }
}

fn was_killed(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.signal() == Some(rustix::process::Signal::KILL.as_raw())
}

/// Plays the scenario on the store that the environment names, up to the point at which this process ends.
///
/// # Panics
/// If there is no store to play on.
pub(crate) fn play_in_this_process(scenario: &Scenario, point: &Point) {
    #[expect(
        clippy::disallowed_methods,
        reason = "one process tells another where its store is"
    )]
    let folder = std::env::var(STORE_VARIABLE).expect("the one who starts this names a store");
    let log = block_on(SqliteLog::open(store_in(Path::new(&folder)))).expect("a new store");
    let _not_reached = case::play(&Case {
        scenario,
        log: Arc::new(Answered(log)),
        stop: Some((point, Way::Kill)),
    });
}

fn store_in(folder: &Path) -> PathBuf {
    folder.join("sessions.db")
}

/// What a killed process left: the turns that it had committed and nothing else, and a session that goes on.
fn look(folder: &Path, undisturbed: &Undisturbed, scenario: &Scenario) -> Result<(), String> {
    let log: Arc<dyn Log> = Arc::new(Answered(
        block_on(SqliteLog::open(store_in(folder))).map_err(|error| error.to_string())?,
    ));
    let before = block_on(case::read_all(&*log));
    check::recovers_from_everywhere(&before)?;
    let committed = check::conversation_of(&before);
    let whole = check::conversation_of(&undisturbed.records);
    if !whole.starts_with(&committed) {
        return Err("what was committed is not what the undisturbed run commits".to_owned());
    }
    if before.is_empty() {
        return Ok(()); // Killed before its session was there.
    }
    let resumed = block_on(SessionStream::resume(
        Arc::clone(&log),
        case::session_id(),
        allstop_core::Timestamp::from_unix_ms(1),
    ))
    .map_err(|error| format!("the session cannot be resumed: {error}"))?;
    if resumed.state().conversation().messages != committed {
        return Err("resuming changed the conversation".to_owned());
    }
    drop(resumed);
    let next = case::play_next(scenario, &log);
    match (next, undisturbed.next_must) {
        (Some(reason), Some(must)) if reason != must => {
            Err(format!("the next message ended with {}", reason.as_str()))
        }
        (None, _) => Err("the next message has no outcome".to_owned()),
        _ => check::endings(&block_on(case::read_all(&*log))),
    }
}

/// A store on disk whose answers are there at once: the thread waits for it. Paused time would else run ahead.
#[derive(Debug)]
struct Answered(SqliteLog);

impl Log for Answered {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        LogFuture::ready(block_on(self.0.append(stream, expected, id, records)))
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        LogFuture::ready(block_on(self.0.read(stream, from, limit)))
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.0.tail(stream, from, limit)
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        LogFuture::ready(block_on(self.0.list(prefix)))
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        LogFuture::ready(block_on(self.0.try_lock(stream)))
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        LogFuture::ready(block_on(self.0.lock_owner(stream)))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        LogFuture::ready(block_on(self.0.delete(lock)))
    }
}
