//! The keeper's children: starting the command, reaping, asking.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, set_parent_process_death_signal, setsid, wait,
};

use super::order::LaunchOrder;
use crate::linux::procfs::ProcessStat;
use crate::linux::tree::{descendants, signal_each};
use crate::status::ExitInfo;

/// Starts the command as leader of a session of its own.
///
/// So it has no terminal: it can neither read the user's keys nor be stopped for trying, and Ctrl-C reaches it only through
/// a stop. And if the keeper is killed, the process that adopts the tree knows it by its session.
///
/// An error says that no process was started. The answer is the pid alone: the caller looks up the rest once it keeps the
/// process already.
pub(super) fn start(order: LaunchOrder, output: &OwnedFd) -> io::Result<u32> {
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
    // SAFETY: between fork and exec only three system calls are made; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(in_new_process);
    }
    // Dropping the handle neither ends nor reaps it: only `reap` does that.
    Ok(command.spawn()?.id())
}

/// Only a second net, for the main process alone, in case the keeper is killed. One that was killed before sends no signal.
fn die_with(keeper: Pid) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_alive = getppid() == Some(keeper);
    is_alive.then_some(()).ok_or(rustix::io::Errno::SRCH)
}

/// Result of reaping.
pub(super) enum ReapedChildren {
    /// Some children live.
    Living,
    /// The kernel says that there is no child, and so no descendant: each would have fallen to this process.
    NoChild,
}

/// Reaps every child that has ended, and hands each end to `ended`.
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

/// Sends SIGTERM to every descendant, once. Those are told before: none has ended yet.
pub(super) fn ask(tell: impl FnOnce(&[ProcessStat])) {
    let members = descendants(std::process::id());
    tell(&members);
    signal_each(&members, Signal::TERM);
}

pub(super) fn unsigned(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Killed between the fork and the request for its signal, it left a command without a keeper.
    #[test]
    fn nothing_begins_without_its_keeper() {
        let parent = getppid().expect("it has one");
        assert_eq!(die_with(parent), Ok(()));
        assert_eq!(die_with(getpid()), Err(rustix::io::Errno::SRCH));
        set_parent_process_death_signal(None).expect("taken back");
    }
}
