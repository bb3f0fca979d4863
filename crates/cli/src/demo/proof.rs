//! Evidence from outside Allstop: processes and threads in `/proc`, and connections in the tables of the kernel.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use allstop_process::{TreeMember, all_processes, child_processes};
use serde::Serialize;

use super::parts::StalledServer;

/// Digit in the durations of the `sleep` processes of the shell's process tree.
pub(super) const TREE: u32 = 1;
/// Digit in the duration of the `sleep` process of the background shell.
pub(super) const BACKGROUND: u32 = 2;

/// Name of threads that run blocking work, as the kernel shows it.
const THREAD_NAME: &str = "allstop-work";

/// Result of a check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DemoProof {
    pub(super) what: String,
    pub(super) found: u64,
    pub(super) expected: u64,
}

impl DemoProof {
    pub(super) fn of(what: impl Into<String>, found: u64, expected: u64) -> Self {
        Self {
            what: what.into(),
            found,
            expected,
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.found == self.expected
    }
}

/// Checks that look for the demo's work in `/proc` and at the server.
#[derive(Debug)]
pub(super) struct DemoChecks {
    /// Number that only the `sleep` commands of this demo contain.
    mark: u32,
    port: u16,
}

/// Numbers of processes, threads and connections that existed before the stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessCounts {
    pub(super) tree: u64,
    pub(super) threads: u64,
    pub(super) connections: u64,
}

impl DemoChecks {
    pub(super) fn new(port: u16) -> Self {
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        Self {
            mark: nanos ^ std::process::id(),
            port,
        }
    }

    /// A `sleep` command that a check can find among all processes.
    pub(super) fn sleep(&self, part: u32) -> String {
        format!("sleep {}", self.duration(part))
    }

    fn duration(&self, part: u32) -> String {
        // The number stands after the decimal point. So the commands are different, but all sleeps last about 600 s.
        format!("600.{part}{:010}", self.mark)
    }

    /// Counts the work before the stop. Returns `None` until all of the work has started: both `sleep` processes of the
    /// tree, the background `sleep`, the thread and the connection.
    pub(super) fn count_running_work(&self) -> Option<ProcessCounts> {
        let before = ProcessCounts {
            tree: self.sleeps(TREE),
            threads: threads(),
            connections: self.connections(),
        };
        let all = before.tree == 2 && before.threads >= 1 && before.connections == 1;
        (all && self.sleeps(BACKGROUND) == 1).then_some(before)
    }

    pub(super) async fn after_the_stop(
        &self,
        before: &ProcessCounts,
        server: &StalledServer,
    ) -> Vec<DemoProof> {
        vec![
            DemoProof::of(
                format!("processes of the shell tree ({} before)", before.tree),
                self.sleeps(TREE),
                0,
            ),
            DemoProof::of(
                format!("blocking threads ({} before)", before.threads),
                threads(),
                0,
            ),
            DemoProof::of(
                format!(
                    "established connections to the server ({} before)",
                    before.connections
                ),
                self.connections(),
                0,
            ),
            DemoProof::of(
                "connections that the server saw closed",
                server.closed(1).await,
                1,
            ),
            DemoProof::of(
                "the background shell, which the stop did not cover",
                self.sleeps(BACKGROUND),
                1,
            ),
        ]
    }

    pub(super) fn after_the_end(&self) -> Vec<DemoProof> {
        vec![
            DemoProof::of(
                "processes of the background shell",
                self.sleeps(BACKGROUND),
                0,
            ),
            DemoProof::of(
                "child processes of any kind",
                child_processes().len() as u64,
                0,
            ),
        ]
    }

    /// Number of `sleep` processes with the digit `part`. Shells whose longer command lines contain the same `sleep`
    /// command do not count.
    fn sleeps(&self, part: u32) -> u64 {
        let wanted = self.duration(part);
        let is_sleep = |member: &TreeMember| {
            let mut words = member.command_line.split(' ');
            words.next().is_some_and(|name| name.ends_with("sleep"))
                && words.next() == Some(&*wanted)
        };
        let all = all_processes().into_iter();
        all.filter(is_sleep).count() as u64
    }

    /// Number of established connections to the server, in the kernel's table of this process, the client.
    fn connections(&self) -> u64 {
        let wanted = format!("0100007F:{:04X}", self.port);
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
        let is_ours = |line: &&str| {
            let mut words = line.split_whitespace().skip(2);
            words.next() == Some(&wanted) && words.next() == Some("01")
        };
        table.lines().filter(is_ours).count() as u64
    }
}

/// Number of threads of this process that run blocking work.
fn threads() -> u64 {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == THREAD_NAME).count() as u64
}
