//! Identity of a process: its pid, its start time and its boot. A later process that reuses the pid has a different
//! identity.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, OnceLock};

use allstop_core::process::ProcessIdentity;
use rustix::process::Pid;

use crate::platform::identity_of;

/// Identity of this process. On a system without `/proc`, the start time is 0 and the boot id is empty.
pub fn this_process() -> &'static ProcessIdentity {
    static THIS: OnceLock<ProcessIdentity> = OnceLock::new();
    THIS.get_or_init(|| {
        let pid = std::process::id();
        identity_of(pid).unwrap_or_else(|| identity(pid, 0))
    })
}

/// True if a process with this identity could be running. No process of an earlier boot can be running, so this
/// function does not query the system.
pub fn is_of_this_boot(identity: &ProcessIdentity) -> bool {
    identity.boot_id == boot_id()
}

/// True if a process with this identity could be running but is not visible from here, because its pid belongs to
/// another PID namespace. A record without a namespace comes from an older version, and its process counts as visible.
pub fn is_out_of_view(identity: &ProcessIdentity) -> bool {
    is_of_this_boot(identity)
        && identity.pid_namespace.is_some()
        && identity.pid_namespace != pid_namespace()
}

pub(crate) fn identity(pid: u32, start_ticks: u64) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_ticks,
        boot_id: boot_id(),
        pid_namespace: pid_namespace(),
    }
}

pub(crate) fn raw_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// PID namespace of this process. `None` on a system without `/proc`.
fn pid_namespace() -> Option<u64> {
    static NAMESPACE: OnceLock<Option<u64>> = OnceLock::new();
    let read = || Some(fs::metadata("/proc/self/ns/pid").ok()?.ino());
    *NAMESPACE.get_or_init(read)
}

/// Id of the current boot. Empty on a system without `/proc`.
fn boot_id() -> Arc<str> {
    static BOOT_ID: OnceLock<Arc<str>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Arc::clone(BOOT_ID.get_or_init(|| Arc::from(read().trim())))
}
