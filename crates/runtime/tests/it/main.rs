//! Tests of the runtime through its public interface.

mod agent_executor;
mod background;
mod commands;
mod config;
mod crash;
mod detach;
mod envelope;
mod mcp;
mod schemas;
mod start;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use allstop_core::Cause;
use allstop_core::CauseKind;
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_log::session::{decode, stream_of};
use allstop_log::{Version, read_session};
use allstop_model::{Reply, ScriptedModel};
use allstop_process::{ContainmentChoice, KeeperProgram, Keepers, identity_of};
use allstop_runtime::{Config, ModelChoice, SessionSetup, StoreChoice, System, SystemOptions};
use allstop_scope::RootOptions;
use allstop_session::{MessageOutcome, Session};
use allstop_tools::PermissionAnswer;
use allstop_tools::permission::FixedAnswer;
use tempfile::TempDir;

/// Time limit of every test, on every machine: a hang is a failure.
const TEST_MAX: Duration = Duration::from_mins(1);

const HELPER: &str = env!("CARGO_BIN_EXE_allstop-runtime-helper");

async fn within<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_MAX, test).await.expect("no hang")
}

/// A temporary folder with a working directory, a store and output.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().expect("a temporary folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn options(&self, config: &str, model: Option<ScriptedModel>) -> SystemOptions {
        let mut config =
            Config::parse(Path::new("test.toml"), config).expect("the configuration is right");
        // The default prompt contains the folder, so the token count would differ between runs.
        config.system_prompt.get_or_insert_default();
        let keeper = KeeperProgram {
            executable: HELPER.into(),
            args: vec!["keep-call".into()],
        };
        SystemOptions::new(config, self.path())
            .model(model.map(|model| ModelChoice::Given(Arc::new(model))))
            .store(StoreChoice::Sqlite(self.file("store.db")))
            .spill_folder(self.file("output"))
            .scopes(
                RootOptions::single_runtime()
                    .containment(ContainmentChoice::Keeper(Keepers::new(keeper))),
            )
            .prompter(Arc::new(FixedAnswer(PermissionAnswer::AllowOnce)))
            .owner(identity_of(std::process::id()))
    }

    async fn system(&self, config: &str, replies: Vec<Reply>) -> System {
        let options = self.options(config, Some(ScriptedModel::new(replies)));
        let system = System::open(options).await.expect("the system opens");
        system.start_servers().await.expect("nothing is stopped");
        system
    }
}

fn user() -> Cause {
    Cause::new(CauseKind::User)
}

/// Runs one turn in a new session, and closes the session.
async fn one_turn(system: &System, prompt: &str) -> Arc<MessageOutcome> {
    let open = system.new_session(None, SessionSetup::default()).await;
    let session = open.expect("a new session").session;
    let sent = session.send(prompt).expect("the message is taken");
    let outcome = sent.outcome().await;
    let receipt = session.close().await;
    assert!(receipt.quiet(), "{receipt:?}");
    outcome
}

/// Waits until the owner of the session has opened it and recorded the unfinished work of earlier processes. The owner
/// handles requests in order, so an answer proves this.
async fn owner_answers(session: &Session) {
    let detached = session.detach_background().await;
    assert!(detached.expect("the store works").is_empty());
}

/// State of a session, read from its log.
async fn state_of(system: &System, id: &str) -> SessionState {
    let read = read_session(&**system.log(), &id.into()).await;
    read.expect("the log can be read").0
}

/// Records of a session's log.
async fn records_of(system: &System, id: &str) -> Vec<SessionRecord> {
    let stream = stream_of(&id.into());
    let records = system.log().read(&stream, Version(1), 100_000).await;
    let records = records.expect("the log can be read").into_iter();
    records
        .filter_map(|(_, bytes)| decode(&bytes).expect("readable"))
        .collect()
}

/// Returns a number for `sleep` that no other test uses. The number identifies the processes by their command line.
fn token() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "600.{}{:04}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Number of `sleep` processes with this argument. Counts them in `/proc`, and not in Allstop's own records.
fn sleepers(token: &str) -> usize {
    let processes = std::fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten();
    let is_sleeper = |path: PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line.strip_prefix(b"sleep\0".as_slice())
            .is_some_and(|rest| rest.strip_suffix(b"\0") == Some(token.as_bytes()))
    };
    processes.filter(|entry| is_sleeper(entry.path())).count()
}

/// Polls for a change in another process, because a test cannot await events of that process.
async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}
