//! Processes of a killed keeper, the helper process that contained the process tree of a command. If this process is a
//! subreaper, the kernel makes these processes its children. This module finds, kills and reaps them.
//!
//! Every command runs in its own session, and no process can join the session of another process. Therefore a child in
//! another session than the session of this process was adopted, unless it existed before this program started.
//! Keepers, and all other processes that this process starts, are in the session of this process. This module reaps
//! only adopted processes, so no other waiter loses an exit status.

use std::fs;
use std::sync::Arc;

use rustix::process::{Signal, WaitOptions, waitpid};

use super::procfs::{ProcessStat, stat, visit_processes};
use super::tree::{rooted, signal_each};
use crate::identity::raw_pid;

/// Result of one search.
pub(super) struct AdoptedProcesses {
    /// Living adopted processes and their descendants.
    pub(super) living: Vec<ProcessStat>,
    /// True if all processes could be examined.
    pub(super) is_complete: bool,
}

impl AdoptedProcesses {
    /// True if the search certainly found no adopted process.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete && self.living.is_empty()
    }
}

/// Children that this process already had when its program started. A process keeps its children during an `exec`.
#[derive(Debug, Clone, Default)]
pub(super) struct InheritedChildren(Arc<[(u32, u64)]>);

impl InheritedChildren {
    /// The current children of this process. Call this function before the first keeper is started.
    pub(super) fn now() -> Self {
        let found = children_of_threads().unwrap_or_else(|| {
            // On a kernel without the `children` files, examines all processes.
            let (me, mut found) = (std::process::id(), Vec::new());
            visit_processes(|stat| found.push(stat));
            found.retain(|stat| stat.parent == me);
            found
        });
        let named = found.iter().map(|stat| (stat.pid, stat.start_ticks));
        Self(named.collect())
    }

    fn has(&self, stat: &ProcessStat) -> bool {
        self.0.contains(&(stat.pid, stat.start_ticks))
    }
}

/// The children of all threads of this process. Examines no other process.
fn children_of_threads() -> Option<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let pids = listed.split_whitespace();
        found.extend(pids.filter_map(|pid| stat(pid.parse().ok()?)));
    }
    Some(found)
}

/// Kills and reaps the processes that this process has adopted after the end of `keeper`. `None` if `/proc` does not
/// even show this process.
pub(super) fn kill_adopted(keeper: u32, inherited: &InheritedChildren) -> Option<AdoptedProcesses> {
    let me = std::process::id();
    let mut all = Vec::new();
    let is_complete = visit_processes(|stat| all.push(stat));
    // The session is read from `/proc`, like the sessions of all other processes. If the leader of the session is
    // outside of this PID namespace, `/proc` reports 0. `getsid` of rustix cannot return 0.
    let own_session = all.iter().find(|stat| stat.pid == me)?.session;
    let is_adopted = |stat: &ProcessStat| {
        // If the keeper forked a process just before its own end, this process may not be in its own session yet. It is
        // then still in the group of the keeper.
        stat.parent == me
            && stat.pid != keeper
            && !inherited.has(stat)
            && (stat.session != own_session || stat.group == keeper)
    };
    let mut living = rooted(&all, is_adopted);
    for dead in living
        .iter()
        .filter(|stat| stat.parent == me && stat.is_dead())
    {
        // The process is a dead child of this process. The kernel does not reuse its pid before this line reaps it.
        let _reaped = raw_pid(dead.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
    living.retain(|stat| !stat.is_dead());
    signal_each(&living, Signal::KILL);
    Some(AdoptedProcesses {
        living,
        is_complete,
    })
}
