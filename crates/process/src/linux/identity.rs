//! Processes by their identity: finds a process, and sends it a signal that never reaches another process.

use std::io;

use allstop_core::process::ProcessIdentity;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::identity::{identity, is_of_this_boot, is_out_of_view, raw_pid};
use crate::status::ProcessSignal;

use super::procfs::stat;

/// The process with this pid. `None` if no process has this pid.
pub fn identity_of(pid: u32) -> Option<ProcessIdentity> {
    Some(identity(pid, stat(pid)?.start_ticks))
}

/// True if exactly this process is visible and running. A process that has ended but is not reaped yet is not running.
pub fn is_alive(identity: &ProcessIdentity) -> bool {
    is_of_this_boot(identity)
        && !is_out_of_view(identity)
        && stat(identity.pid)
            .is_some_and(|stat| stat.start_ticks == identity.start_ticks && !stat.is_dead())
}

/// Sends a signal to exactly this process, never to another process that has reused its pid.
///
/// # Errors
/// `NotFound` if the process has ended, or is invisible because it is in another PID namespace ([`is_out_of_view`]).
/// `PermissionDenied` if the process belongs to another user.
pub fn signal(identity: &ProcessIdentity, signal: ProcessSignal) -> io::Result<()> {
    let is_hit = is_of_this_boot(identity)
        && !is_out_of_view(identity)
        && signal_exactly(identity.pid, identity.start_ticks, signal.into())?;
    if is_hit {
        Ok(())
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Sends a signal to the process that has this pid *and* this start time. `Ok(false)` if the process has ended.
///
/// The descriptor is opened before the start time is compared. A descriptor always refers to one process, so the signal
/// goes to the process whose start time was compared.
pub(super) fn signal_exactly(pid: u32, start_ticks: u64, signal: Signal) -> io::Result<bool> {
    let Some(raw) = raw_pid(pid) else {
        return Ok(false);
    };
    let gone = |error: rustix::io::Errno| match error {
        rustix::io::Errno::SRCH => Ok(false),
        other => Err(other.into()),
    };
    let descriptor = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(error) => return gone(error),
    };
    if stat(pid).is_none_or(|now| now.start_ticks != start_ticks || now.is_dead()) {
        return Ok(false);
    }
    pidfd_send_signal(&descriptor, signal).map_or_else(gone, |()| Ok(true))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::identity::this_process;

    use super::*;

    #[test]
    fn reused_pid_other_boot_and_other_namespace_are_not_alive() {
        let this = this_process().clone();
        assert_eq!(this.pid, std::process::id());
        assert!(is_alive(&this));
        let start_ticks = this.start_ticks + 1;
        assert!(!is_alive(&ProcessIdentity {
            start_ticks,
            ..this.clone()
        }));
        let boot_id = Arc::from("another");
        assert!(!is_alive(&ProcessIdentity {
            boot_id,
            ..this.clone()
        }));
        assert!(is_alive(&ProcessIdentity {
            pid_namespace: None,
            ..this.clone()
        }));
        let pid_namespace = Some(1);
        assert!(!is_alive(&ProcessIdentity {
            pid_namespace,
            ..this
        }));
    }

    #[test]
    fn signal_with_a_wrong_start_hits_no_process() {
        let me = this_process();
        assert!(!signal_exactly(me.pid, me.start_ticks + 1, Signal::KILL).expect("no error"));
    }
}
