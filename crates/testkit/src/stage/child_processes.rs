//! Real processes that a run starts outside its scope with `std::process`. These processes are children of the thread
//! that plays the run.
//!
//! A run uses only one thread, and the operating system reports which thread started a child. So this module does not
//! mistake processes of other tests, which run on other threads, for processes of the run.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The children that the current thread has started but not reaped. Empty if the operating system has no such list.
#[derive(Debug)]
pub(crate) struct ChildProcesses(BTreeSet<i32>);

impl ChildProcesses {
    /// Reads the children that exist now.
    pub(crate) fn now() -> Self {
        // Only Linux has this file, and a Linux kernel can be built without it.
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let pids = children.split_whitespace().map(str::parse);
        Self(pids.filter_map(Result::ok).collect())
    }

    /// Ends and reaps the children that were started after `self` was read. Returns their names with pids.
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

/// Kills a child of this thread and reaps it. The child was not reaped before, so no other process can have its pid.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The system refuses the kill if the child has changed its user. In this case this function does not wait for
        // the child.
        if kill_process(pid, Signal::KILL).is_ok() {
            let _reaped = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
