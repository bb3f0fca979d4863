//! Real processes that a run starts past its scope, with `std::process`: seen as children of the thread that plays it.
//!
//! A run has one thread, and the system says which thread started a child. So tests that start processes on other
//! threads meanwhile are not mistaken for it.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The children that the current thread has started and not reaped. Empty where the system does not tell.
#[derive(Debug)]
pub(crate) struct ChildProcesses(BTreeSet<i32>);

impl ChildProcesses {
    /// Those of now.
    pub(crate) fn now() -> Self {
        // Linux alone has it, and there a kernel can be built without it.
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let pids = children.split_whitespace().map(str::parse);
        Self(pids.filter_map(Result::ok).collect())
    }

    /// Ends and reaps the children that were started since, each by its pid, and names them.
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

/// `4711 (sleep)`.
fn name_of(pid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim_end())
}

/// Kills a child of this thread and reaps it. It is not reaped yet, so the pid means nobody else.
fn end(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Refused where it has changed its user; then there is nothing to wait for either.
        if kill_process(pid, Signal::KILL).is_ok() {
            let _reaped = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
