//! Real processes that a run starts outside its scope, with `std::process`: they are children of the thread that plays
//! the run.
//!
//! A run has one thread, and the system reports which thread started a child. So processes that other tests start on
//! other threads are not attributed to the run.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The children that the current thread has started and not reaped. Empty if the system does not list them.
#[derive(Debug)]
pub(crate) struct ChildProcesses(BTreeSet<i32>);

impl ChildProcesses {
    /// Reads the present children.
    pub(crate) fn now() -> Self {
        // Only Linux has this file, and a Linux kernel can be built without it.
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let pids = children.split_whitespace().map(str::parse);
        Self(pids.filter_map(Result::ok).collect())
    }

    /// Ends and reaps the children that were started since, and returns their names with pids.
    pub(crate) fn end_newer(&self) -> Vec<String> {
        let newer = Self::now().0.into_iter();
        let newer = newer.filter(|pid| !self.0.contains(pid));
        newer
            .map(|pid| {
                let name = name_of(pid);
                end(pid);
                name
            })
            .collect()
    }
}

/// Returns the name in the form `4711 (sleep)`.
fn name_of(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim_end())
}

/// Kills a child of this thread and reaps it. The child is not reaped yet, so the pid cannot belong to another process.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The kill is refused if the child has changed its user. The child is then not waited for.
        if kill_process(pid, Signal::KILL).is_ok() {
            let _reaped = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
