//! A place of a test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::processes::{self, Process};
use super::wait::within;
use super::{Allstop, FACT_MAX};

/// A place of a test's own: a home, a working directory, a store, and a mark by which every process that comes of it is
/// known. Dropping it kills what is left of those.
#[derive(Debug)]
pub(crate) struct Place {
    folder: TempDir,
    mark: String,
    /// A command of its own, so that a process is known that has cleared its environment.
    sleeper: String,
}

/// Longest time that a keeper without processes outlives its owner.
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

    /// A path in it.
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

    /// The value of [`processes::MARK`] of all its processes.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// A command that sleeps for long, and is the place's own.
    pub(crate) fn sleeper(&self) -> &str {
        &self.sleeper
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("a file in the place");
        path
    }

    /// Writes a script; answers the name of its model.
    pub(crate) fn script(&self, yaml: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.file(&format!("script-{number}.yaml"), yaml);
        format!("script:{}", path.display())
    }

    /// The command, without an argument yet.
    pub(crate) fn allstop(&self) -> Allstop<'_> {
        Allstop::new(self)
    }

    /// `allstop run` on the place's store.
    pub(crate) fn run_unasked(&self) -> Allstop<'_> {
        self.allstop().args("run --store").arg(self.store())
    }

    /// The same, with everything allowed.
    pub(crate) fn run(&self) -> Allstop<'_> {
        self.run_unasked().arg("--yes")
    }

    /// `allstop run` with a script.
    pub(crate) fn run_script(&self, yaml: &str) -> Allstop<'_> {
        self.run().arg("--model").arg(self.script(yaml))
    }

    /// `allstop sessions`, on the place's store.
    pub(crate) fn sessions(&self) -> Allstop<'_> {
        self.allstop().args("sessions --store").arg(self.store())
    }

    /// The id of the first session of the store.
    pub(crate) fn only_session(&self) -> String {
        let listed = self.sessions().args("list --json").end().ok();
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let id = listed["sessions"][0]["session_id"].as_str();
        id.expect("a session").to_owned()
    }

    /// Every process that came of it and lives. Keepers that have nothing left to keep get the time to see that their
    /// owner has ended: on a busy machine that takes a while.
    pub(crate) fn leftovers(&self) -> Vec<Process> {
        let look = || processes::of_mark_or_command(&self.mark, &self.sleeper);
        let settled = within(KEEPER_ENDS_MAX, || {
            let left = look();
            let only_keepers = left.iter().all(Process::is_keeper);
            (left.is_empty() || !only_keepers).then_some(left)
        });
        settled.unwrap_or_else(look)
    }

    /// Kills what is left, until nothing is: what forks all the time may have forked since it was seen.
    pub(crate) fn kill_leftovers(&self) {
        let _gone = within(FACT_MAX, || {
            let left = self.leftovers();
            left.iter().for_each(Process::kill);
            left.is_empty().then_some(())
        });
    }

    /// Nothing of it runs: looked for at once, without patience.
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

/// Folder of all places: in memory, if possible. The time of a disk that others use too is not measured.
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
