//! Isolated environment of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::processes::{self, Process};
use super::wait::within;
use super::{Allstop, FACT_MAX};

/// Isolated environment of a test: a home folder, a working directory, a store, and an environment variable (the mark)
/// that identifies all its processes. Dropping this value kills the remaining processes.
#[derive(Debug)]
pub(crate) struct Place {
    folder: TempDir,
    mark: String,
    /// Unique command that identifies a process with a cleared environment.
    sleeper: String,
}

/// Maximum time between the end of an Allstop process and the end of its idle keeper processes.
const KEEPER_ENDS_MAX: Duration = Duration::from_secs(4);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::Builder::new()
            .prefix("allstop-test-")
            .tempdir_in(base())
            .expect("a temporary folder");
        for below in ["home", "work", "run"] {
            fs::create_dir(folder.path().join(below)).expect("a folder below it");
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!(
            "{}-{number}-{}",
            std::process::id(),
            folder.path().display()
        );
        let sleeper = format!("sleep 600.{}{number:03}", std::process::id());
        Self {
            folder,
            mark,
            sleeper,
        }
    }

    /// A path in the folder of the place.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Working directory of the command.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store.db")
    }

    /// Value of [`processes::MARK`] in all processes of the place.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// A unique command that sleeps for a long time.
    pub(crate) fn sleeper(&self) -> &str {
        &self.sleeper
    }

    /// Writes a file into the folder of the place. Returns its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file in the place");
        path
    }

    /// Writes a script of model answers. Returns the name of the model that plays this script.
    pub(crate) fn script(&self, yaml: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.file(&format!("script-{number}.yaml"), yaml);
        format!("script:{}", path.display())
    }

    /// The command `allstop` without arguments.
    pub(crate) fn allstop(&self) -> Allstop<'_> {
        Allstop::new(self)
    }

    /// `allstop run` on the place's store.
    pub(crate) fn run_unasked(&self) -> Allstop<'_> {
        self.allstop().args("run --store").arg(self.store())
    }

    /// Like [`Self::run_unasked`], but with the flag `--yes`, which allows all calls.
    pub(crate) fn run(&self) -> Allstop<'_> {
        self.run_unasked().arg("--yes")
    }

    /// `allstop run` with a model that plays this script.
    pub(crate) fn run_script(&self, yaml: &str) -> Allstop<'_> {
        self.run().arg("--model").arg(self.script(yaml))
    }

    /// `allstop sessions` on the place's store.
    pub(crate) fn sessions(&self) -> Allstop<'_> {
        self.allstop().args("sessions --store").arg(self.store())
    }

    /// Id of the first session in the store.
    pub(crate) fn only_session(&self) -> String {
        let listed = self.sessions().args("list --json").end().ok();
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let id = listed["sessions"][0]["session_id"].as_str();
        id.expect("a session").to_owned()
    }

    /// Every live process of the place. First waits until idle keepers have ended, which can take some time on a busy
    /// machine after the end of their owner.
    pub(crate) fn leftovers(&self) -> Vec<Process> {
        let look = || processes::of_mark_or_command(&self.mark, &self.sleeper);
        let settled = within(KEEPER_ENDS_MAX, || {
            let left = look();
            let only_keepers = left.iter().all(Process::is_keeper);
            (left.is_empty() || !only_keepers).then_some(left)
        });
        settled.unwrap_or_else(look)
    }

    /// Kills the remaining processes until none is left. Repeats the kill, because a process may fork between the
    /// search and the kill.
    pub(crate) fn kill_leftovers(&self) {
        let _gone = within(FACT_MAX, || {
            let left = self.leftovers();
            left.iter().for_each(Process::kill);
            left.is_empty().then_some(())
        });
    }

    /// Asserts that no process of the place runs. Waits only for the end of idle keepers.
    #[track_caller]
    pub(crate) fn assert_nothing_runs(&self) {
        let left = self.leftovers();
        assert!(left.is_empty(), "still there: {left:#?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kill_leftovers();
    }
}

/// Parent folder of all places. It is in memory if possible, because a shared disk would distort time measurements.
fn base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return memory.to_owned();
    }
    std::env::temp_dir()
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
