//! The keeper's children: starting the command, reaping, and signals to all descendants.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{
    Signal, WaitOptions, WaitStatus, getpgrp, set_parent_process_death_signal, setsid, wait,
};

use crate::process::ExitInfo;
use crate::process::procfs::{Stat, stat};
use crate::process::tree::{descendants, kill_pinned_group, signal_each};

/// Starts the command as leader of a session of its own.
///
/// So it has no terminal: it can neither read what the user types nor be stopped for trying, and Ctrl-C never reaches it
/// but through a stop.
pub(super) fn start(command: Vec<OsString>) -> io::Result<Stat> {
    let mut words = command.into_iter();
    let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    let in_new_process = || {
        setsid()?;
        // Only a second net, for the main process alone, should somebody kill the keeper.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    #[expect(
        unsafe_code,
        reason = "the standard library has no stable way to start a child in a new session"
    )]
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated and no lock is taken.
    unsafe {
        command.pre_exec(in_new_process);
    }
    let child = command.spawn()?;
    // It cannot have been reaped: only `reap` does that.
    stat(child.id()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// What reaping found.
pub(super) enum Reaped {
    /// Some children live.
    Living,
    /// The kernel says that there is no child, and so no descendant: each would have fallen to this process.
    NoChild,
}

/// Reaps every child that has ended, and tells how the main one did.
pub(super) fn reap(main: u32, mut main_exited: impl FnMut(ExitInfo)) -> Reaped {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if u32::try_from(pid.as_raw_nonzero().get()) == Ok(main) {
                    main_exited(exit_info(status));
                }
            }
            Ok(None) => return Reaped::Living,
            Err(rustix::io::Errno::CHILD) => return Reaped::NoChild,
            Err(_interrupted) => {}
        }
    }
}

fn exit_info(status: WaitStatus) -> ExitInfo {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitInfo::Code(code),
        (None, Some(signal)) => ExitInfo::Signal(signal),
        (None, None) => ExitInfo::Unknown,
    }
}

/// SIGTERM to every descendant, once.
pub(super) fn ask() {
    signal_each(&descendants(std::process::id()), Signal::TERM);
}

/// One pass of SIGKILL over every descendant. The caller reaps and repeats until there is none.
///
/// First the groups of the direct children, each in one step, so that something that forks faster than `/proc` can be
/// read does not get away. Their numbers are pinned: a child stays a member of its group until it is reaped, which only
/// this thread does. Their groups hold nobody else: the command was started in a session of its own, and a group never
/// spans sessions.
pub(super) fn kill_pass() {
    let me = std::process::id();
    let own_group = u32::try_from(getpgrp().as_raw_nonzero().get()).unwrap_or_default();
    let members = descendants(me);
    let groups: HashSet<u32> = members
        .iter()
        .filter(|member| member.parent == me && member.group != own_group)
        .map(|member| member.group)
        .collect();
    groups.into_iter().for_each(kill_pinned_group);
    signal_each(&members, Signal::KILL);
}
