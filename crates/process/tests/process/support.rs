//! Launches commands in tests, and reads `/proc` without the library.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use allstop_core::receipt::{Containment, EndProof};
use allstop_process::{
    ContainmentChoice, KeeperProgram, Keepers, OutputReader, ProcessHandle, ProcessSpec, launch,
};
use libtest_mimic::{Failed, Trial};
use tokio::task::JoinSet;

/// Time limit of a test on any machine. If a test hangs, it fails after this time.
const TEST_MAX: Duration = Duration::from_mins(1);

/// A unique duration for `sleep`. The command line of a test's `sleep` processes contains this duration, so they can be
/// found in any environment, group and session, and below any parent.
pub(crate) fn token() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "600.{}{:04}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

pub(crate) fn keeper() -> ContainmentChoice {
    ContainmentChoice::Keeper(Keepers::new(keeper_program()))
}

pub(crate) fn keeper_program() -> KeeperProgram {
    KeeperProgram {
        executable: std::env::current_exe().expect("this binary has a path"),
        args: vec!["keep-call".into()],
    }
}

/// Both levels of containment, for tests of rules that apply to both.
pub(crate) const LEVELS: [Containment; 2] = [Containment::Keeper, Containment::GroupAndMarker];

pub(crate) fn choice(level: Containment) -> ContainmentChoice {
    if level == Containment::Keeper {
        keeper()
    } else {
        ContainmentChoice::GroupAndMarker
    }
}

pub(crate) fn proof(level: Containment) -> EndProof {
    if level == Containment::Keeper {
        EndProof::ProcessTreeEmpty
    } else {
        EndProof::ProcessGroupEmpty
    }
}

pub(crate) fn shell(script: &str, token: &str, level: Containment) -> ProcessSpec {
    ProcessSpec::new("sh", format!("test-{token}"))
        .args(["-c", &script.replace("TOKEN", token)])
        .cwd("/")
        .env("GREETING", "hello")
        .containment(choice(level))
}

/// A launched command with a running driver. Dropping this value drops the driver.
pub(crate) struct Running {
    pub(crate) handle: ProcessHandle,
    pub(crate) output: OutputReader,
    pub(crate) driver: JoinSet<()>,
}

pub(crate) fn run(spec: ProcessSpec) -> Running {
    let (handle, driver, output) = launch(spec).expect("it starts");
    let mut tasks = JoinSet::new();
    tasks.spawn(driver);
    Running {
        handle,
        output,
        driver: tasks,
    }
}

impl Running {
    /// Reads all output until the main process exits.
    pub(crate) async fn read_all(&mut self) -> String {
        let mut all = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self
                .output
                .read(&mut buffer)
                .await
                .expect("the pipe can be read")
            {
                0 => return String::from_utf8(all).expect("text"),
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
    }

    /// Reads until this text was printed. A test uses the text to wait for a certain point of the script.
    pub(crate) async fn read_until(&mut self, text: &str) {
        let mut all = String::new();
        let mut buffer = [0; 4096];
        while !all.contains(text) {
            let len = self
                .output
                .read(&mut buffer)
                .await
                .expect("the pipe can be read");
            assert_ne!(len, 0, "{text:?} was never printed, only {all:?}");
            all.push_str(&String::from_utf8_lossy(&buffer[..len]));
        }
    }

    pub(crate) async fn force_and_wait(&mut self) -> (EndProof, Duration) {
        let start = Instant::now();
        self.handle.force();
        let verified = self.handle.wait_empty().await.expect("it is watched");
        (verified, start.elapsed())
    }
}

/// Pids and command lines of all processes with this text in their command line, including keepers, except zombies.
pub(crate) fn running(token: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten()
    {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(token) {
            found.push((pid, line));
        }
    }
    found
}

pub(crate) fn sleepers(token: &str) -> usize {
    running(token)
        .iter()
        .filter(|(_, line)| line.starts_with("sleep "))
        .count()
}

pub(crate) fn assert_nothing_runs(token: &str) {
    let left = running(token);
    assert!(left.is_empty(), "left over: {left:?}");
}

/// Waits until another process has changed. No event exists for such a change, so this function checks repeatedly.
pub(crate) async fn wait_until(
    what: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> bool,
) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("it is there to be signalled");
}

/// A test with its own runtime and a time limit.
pub(crate) fn trial<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failed::from)?;
        let result = runtime.block_on(async { tokio::time::timeout(TEST_MAX, test()).await });
        runtime.shutdown_background();
        result.map_err(|_| Failed::from(format!("not done within {TEST_MAX:?}")))
    })
}

/// Creates one test for each level of containment.
pub(crate) fn on_both_levels<F: Future<Output = ()>>(
    name: &str,
    test: impl Fn(Containment) -> F + Copy + Send + 'static,
) -> Vec<Trial> {
    LEVELS
        .iter()
        .map(|level| trial(&format!("{name}::{}", level.as_str()), move || test(*level)))
        .collect()
}
