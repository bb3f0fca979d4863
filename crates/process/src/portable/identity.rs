//! Identity of processes on systems that do not report the start time of a process.

use std::io;

use allstop_core::process::ProcessIdentity;

use crate::identity::{is_of_this_boot, raw_pid};
use crate::status::{MarkedSearch, ProcessSignal, TreeMember};

/// Always `None`, because the system does not report the start time of a process.
pub fn identity_of(_pid: u32) -> Option<ProcessIdentity> {
    None
}

/// True if a process with this pid is running.
pub fn is_alive(identity: &ProcessIdentity) -> bool {
    is_of_this_boot(identity)
        && raw_pid(identity.pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Sends a signal to the process with this pid.
///
/// # Errors
/// `NotFound` if the process has ended, `PermissionDenied` if the process belongs to another user.
pub fn signal(identity: &ProcessIdentity, signal: ProcessSignal) -> io::Result<()> {
    let pid = raw_pid(identity.pid).filter(|_| is_alive(identity));
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok(rustix::process::kill_process(pid, signal.into())?)
}

/// Living processes of this machine. Empty, because there is no `/proc` to list them.
pub fn all_processes() -> Vec<TreeMember> {
    Vec::new()
}

/// Living processes with a wanted marker: empty, since there is no `/proc` to list them.
pub fn marked_processes(_is_wanted: impl Fn(&str) -> bool) -> MarkedSearch {
    MarkedSearch {
        processes: Vec::new(),
        is_complete: true,
    }
}

/// Living children of this process. Empty, because there is no `/proc` to list them.
pub fn child_processes() -> Vec<TreeMember> {
    Vec::new()
}
