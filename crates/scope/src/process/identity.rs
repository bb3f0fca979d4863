//! A process that can be named again later, without ever meaning another one with the same pid.

use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};

use allstop_core::process::ProcessIdentity;
use rustix::process::Pid;

use super::status::Signal;

/// The process with this pid, if there is one and the platform tells when it started.
pub fn identity_of(pid: u32) -> Option<ProcessIdentity> {
    #[cfg(target_os = "linux")]
    {
        Some(identity(pid, super::procfs::stat(pid)?.start_ticks))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        None
    }
}

/// Whether a process of this identity could run: those of an earlier boot are gone, and nobody has to look.
pub fn is_of_this_boot(identity: &ProcessIdentity) -> bool {
    identity.boot_id == boot_id()
}

/// Whether this very process still runs. One that has ended and only waits to be reaped does not run.
pub fn is_alive(identity: &ProcessIdentity) -> bool {
    #[cfg(target_os = "linux")]
    {
        identity.boot_id == boot_id()
            && super::procfs::stat(identity.pid)
                .is_some_and(|stat| stat.start_ticks == identity.start_ticks && !stat.is_dead())
    }
    #[cfg(not(target_os = "linux"))]
    {
        identity.boot_id == boot_id()
            && raw_pid(identity.pid)
                .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }
}

/// Sends a signal to this very process; another one that has its pid by now is never hit.
///
/// # Errors
/// `NotFound` if it has ended, `PermissionDenied` if it belongs to somebody else.
pub fn signal(identity: &ProcessIdentity, signal: Signal) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    #[cfg(target_os = "linux")]
    {
        if identity.boot_id != boot_id() {
            return Err(gone());
        }
        let hit = super::procfs::signal_exactly(identity.pid, identity.start_ticks, signal.into())?;
        if hit { Ok(()) } else { Err(gone()) }
    }
    #[cfg(not(target_os = "linux"))]
    {
        if !is_alive(identity) {
            return Err(gone());
        }
        let pid = raw_pid(identity.pid).ok_or_else(gone)?;
        Ok(rustix::process::kill_process(pid, signal.into())?)
    }
}

impl From<Signal> for rustix::process::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Term => Self::TERM,
            Signal::Kill => Self::KILL,
        }
    }
}

pub(super) fn identity(pid: u32, start_ticks: u64) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_ticks,
        boot_id: boot_id(),
    }
}

pub(super) fn raw_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Empty where there is no `/proc`.
fn boot_id() -> Arc<str> {
    static BOOT_ID: OnceLock<Arc<str>> = OnceLock::new();
    let read = || fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Arc::clone(BOOT_ID.get_or_init(|| Arc::from(read().trim())))
}
