//! Processes of a killed keeper, which the kernel makes children of this process if this is a subreaper: found, killed,
//! reaped.
//!
//! Every command runs in a session of its own, and no process can join the session of another. So a child of this process
//! that is in another session was not started by it, but adopted. A keeper, and whatever else this process starts, is in
//! this process's session. Only adopted processes are ever reaped here, so no other waiter loses an exit status.

use rustix::process::{Signal, WaitOptions, waitpid};

use super::procfs::{ProcessStat, visit_processes};
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

/// Kills and reaps what this process has adopted, now that `keeper` has ended. `None`: `/proc` does not show even this
/// process.
pub(super) fn kill_adopted(keeper: u32) -> Option<AdoptedProcesses> {
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
