//! Identity of a process: its pid with its start and boot, so that a reused pid is never taken for it.

use std::fs;
use std::sync::{Arc, OnceLock};

use allstop_core::process::ProcessIdentity;
use rustix::process::Pid;

use crate::platform::identity_of;

/// Identity of this process. Without `/proc` its start is 0 and its boot is empty.
pub fn this_process() -> &'static ProcessIdentity {
    static THIS: OnceLock<ProcessIdentity> = OnceLock::new();
    THIS.get_or_init(|| {
        let pid = std::process::id();
        identity_of(pid).unwrap_or_else(|| identity(pid, 0))
    })
}

/// True if a process of this identity could run: those of an earlier boot are gone, and nothing has to be looked up.
pub fn is_of_this_boot(identity: &ProcessIdentity) -> bool {
    identity.boot_id == boot_id()
}

pub(crate) fn identity(pid: u32, start_ticks: u64) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_ticks,
        boot_id: boot_id(),
    }
}

pub(crate) fn raw_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Empty on a system without `/proc`.
fn boot_id() -> Arc<str> {
    static BOOT_ID: OnceLock<Arc<str>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Arc::clone(BOOT_ID.get_or_init(|| Arc::from(read().trim())))
}
