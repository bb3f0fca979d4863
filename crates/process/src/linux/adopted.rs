//! Processes of a killed keeper, which the kernel makes children of this process if this is a subreaper: found, killed,
//! reaped.
//!
//! Every command runs in a session of its own, and no process can join the session of another. So a child of this process
//! that is in another session was adopted, unless it existed before this program. A keeper and all other processes that this
//! process starts are in this process's session. Only adopted processes are ever reaped here, so no other waiter loses an
//! exit status.

use std::fs;
use std::sync::Arc;

use rustix::process::{Signal, WaitOptions, waitpid};

use super::procfs::{ProcessStat, stat, visit_processes};
use super::tree::{rooted, signal_each};
use crate::identity::raw_pid;

/// Result of one look.
pub(super) struct AdoptedProcesses {
    /// Adopted processes and their descendants that still run.
    pub(super) living: Vec<ProcessStat>,
    /// True if all processes could be looked at.
    pub(super) is_complete: bool,
}

impl AdoptedProcesses {
    /// True if certainly none was there.
    pub(super) fn is_empty(&self) -> bool {
        self.is_complete && self.living.is_empty()
    }
}

/// Children that this process had before its program started: they survive an `exec`.
#[derive(Debug, Clone, Default)]
pub(super) struct InheritedChildren(Arc<[(u32, u64)]>);

impl InheritedChildren {
    /// The children of this process now. Call it before the first keeper is started.
    pub(super) fn now() -> Self {
        let found = children_of_threads().unwrap_or_else(|| {
            // A kernel without these files: all processes are looked at.
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

/// The children of all threads of this process, without a look at any other process.
fn children_of_threads() -> Option<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        let pids = listed.split_whitespace();
        found.extend(pids.filter_map(|pid| stat(pid.parse().ok()?)));
    }
    Some(found)
}

/// Kills and reaps what this process has adopted, now that `keeper` has ended. `None`: `/proc` does not show even this
/// process.
pub(super) fn kill_adopted(keeper: u32, inherited: &InheritedChildren) -> Option<AdoptedProcesses> {
    let me = std::process::id();
    let mut all = Vec::new();
    let is_complete = visit_processes(|stat| all.push(stat));
    // From `/proc`, as everyone else's: 0 where the session's leader is outside of this pid namespace, which `getsid` of
    // rustix cannot express.
    let own_session = all.iter().find(|stat| stat.pid == me)?.session;
    let is_adopted = |stat: &ProcessStat| {
        // One that the keeper had forked just before, and that is not yet in a session of its own, is in its group.
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
        // Seen as a child of this process and as dead: the number is its own until it is reaped here.
        let _reaped = raw_pid(dead.pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
    }
    living.retain(|stat| !stat.is_dead());
    signal_each(&living, Signal::KILL);
    Some(AdoptedProcesses {
        living,
        is_complete,
    })
}
