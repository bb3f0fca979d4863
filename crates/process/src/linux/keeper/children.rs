//! The children of a keeper, the helper process that contains the process tree of a command. Starts the command, reaps
//! children, and sends SIGTERM.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, setsid, wait,
};

use super::start_command::StartCommand;
use crate::linux::procfs::ProcessStat;
use crate::linux::tree::{descendants, signal_each};
use crate::status::ExitInfo;

/// Starts the command as the leader of a new session.
///
/// Therefore the command has no terminal. It cannot read the user's keys, it is not suspended if it tries to read them,
/// and Ctrl-C reaches it only as a stop. If the keeper is killed, another process adopts the tree, and recognizes the
/// tree by its session.
///
/// An error means that no process was started. The function returns only the pid. The caller looks up further data
/// after it has stored the pid.
pub(super) fn start(order: StartCommand, output: &OwnedFd) -> io::Result<u32> {
    let mut command = Command::new(order.program);
    command
        .args(order.args)
        .current_dir(order.cwd)
        .env_clear()
        .envs(order.env)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let keeper = getpid();
    let in_new_process = move || {
        setsid()?;
        Ok(die_with(keeper)?)
    };
    #[expect(
        unsafe_code,
        reason = "the standard library has no stable way to start a child in a new session"
    )]
    // SAFETY: the child makes only three system calls between fork and exec; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(in_new_process);
    }
    // Dropping the handle neither ends nor reaps the child. Only `reap` reaps children.
    Ok(command.spawn()?.id())
}

/// A second safeguard if the keeper is killed: the kernel then kills the main process. If the keeper has died before
/// this request, the kernel sends no signal, so this function also checks that the keeper is alive.
fn die_with(keeper: Pid) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_alive = getppid() == Some(keeper);
    is_alive.then_some(()).ok_or(rustix::io::Errno::SRCH)
}

/// Result of reaping.
pub(super) enum ReapedChildren {
    /// Some children are alive.
    Living,
    /// The kernel reports that this process has no child. So it has no descendant either, because each orphaned
    /// descendant becomes a child of this process.
    NoChild,
}

/// Reaps every child that has ended, and passes each end to `ended`.
pub(super) fn reap(mut ended: impl FnMut(u32, ExitInfo)) -> ReapedChildren {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(
                unsigned(pid),
                ExitInfo::new(status.exit_status(), status.terminating_signal()),
            ),
            Ok(None) => return ReapedChildren::Living,
            Err(rustix::io::Errno::CHILD) => return ReapedChildren::NoChild,
            Err(_interrupted) => {}
        }
    }
}

/// Sends SIGTERM to every descendant, once. Before the signal, while all descendants are still alive, `report` receives
/// the list of these descendants.
pub(super) fn ask(report: impl FnOnce(&[ProcessStat])) {
    let members = descendants(std::process::id());
    report(&members);
    signal_each(&members, Signal::TERM);
}

pub(super) fn unsigned(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the keeper was killed after the fork, but before the child had requested the death signal. The
    /// command then continued to run.
    #[test]
    fn nothing_begins_without_its_keeper() {
        let parent = getppid().expect("it has one");
        assert_eq!(die_with(parent), Ok(()));
        assert_eq!(die_with(getpid()), Err(rustix::io::Errno::SRCH));
        set_parent_process_death_signal(None).expect("taken back");
    }
}
