//! One call that a keeper serves: a command, and the process tree of the command until the tree is empty.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};

use super::children::{ReapedChildren, reap, start};
use super::drain::OutputDrain;
use super::killing::TreeKill;
use super::protocol::KeeperReport;
use super::start_command::StartCommand;
use crate::linux::owner_deadline::OwnerDeadline;
use crate::linux::procfs::{ProcessStat, has_entered_namespace, stat};
use crate::linux::tree::descendants;

/// Maximum number of files that are sent with a start: the start command, the output pipe, and the deadline if there is
/// one.
pub(in crate::linux) const START_FILES_MAX: usize = 3;

/// Longest pause between two checks of a deadline.
const DEADLINE_LOOK: Duration = Duration::from_secs(1);

/// One call, until its tree is empty.
pub(super) struct KeeperCall {
    pub(super) number: u64,
    main: u32,
    output: OwnedFd,
    /// True if the command has started but its identity cannot be read. The command is then killed. After its tree is
    /// empty, the command is reported as failed.
    is_unidentified: bool,
    killing: Option<TreeKill>,
    /// Time of the kill of a detached tree, after its keeper received SIGTERM.
    pub(super) kill_at: Option<Instant>,
    /// Time of the kill, unless the tree is detached, or the owner (the process that requested the call) postpones the
    /// deadline.
    deadline: Option<OwnerDeadline>,
    pub(super) drain: Option<OutputDrain>,
}

/// Result of a step of a call.
pub(super) enum CallStep {
    /// The tree is empty.
    Empty,
    /// Wait for an event, at most this long.
    Wait(Option<Duration>),
}

impl KeeperCall {
    /// Starts the command. If the start fails, reports the failure and returns `None`.
    pub(super) fn begin(
        number: u64,
        files: Vec<OwnedFd>,
        owner: BorrowedFd<'_>,
        start_ticks: impl FnOnce(u32) -> Option<u64>,
    ) -> Option<Self> {
        let mut files = files.into_iter();
        let (output, order) = (files.next(), files.next());
        let deadline = files.next().map(OwnerDeadline::of_file);
        let started = output
            .zip(order)
            .ok_or_else(|| (io::ErrorKind::InvalidData.into(), false))
            .and_then(|(output, order)| {
                let order = StartCommand::from_file(order).map_err(|error| (error, false))?;
                let cwd = order.cwd.clone();
                // The system reports the same error for a missing directory and for a missing program, so the directory
                // is checked.
                let main =
                    start(order, &output).map_err(|error| (error, !Path::new(&cwd).is_dir()))?;
                Ok((main, output))
            });
        match started {
            Ok((main, output)) => {
                let ticks = start_ticks(main);
                let mut call = Self {
                    number,
                    main,
                    output,
                    is_unidentified: ticks.is_none(),
                    killing: None,
                    kill_at: None,
                    deadline,
                    drain: None,
                };
                match ticks {
                    Some(start_ticks) => send_report(
                        owner,
                        &KeeperReport::Started {
                            pid: main,
                            start_ticks,
                        },
                    ),
                    None => call.begin_killing(),
                }
                Some(call)
            }
            Err::<_, (io::Error, bool)>((error, in_directory)) => {
                let errno = error.raw_os_error().unwrap_or_default();
                send_report(
                    owner,
                    &KeeperReport::Failed {
                        errno,
                        in_directory,
                    },
                );
                None
            }
        }
    }

    /// Reaps children. If a kill has begun, continues the kill.
    pub(super) fn step(&mut self, owner: BorrowedFd<'_>) -> CallStep {
        let (main, killing) = (self.main, &mut self.killing);
        let is_unidentified = self.is_unidentified;
        let mut main_exited = false;
        let reaped = reap(|child, exit| {
            if let Some(killing) = killing {
                killing.reaped(child);
            }
            if child == main {
                main_exited = true;
                if !is_unidentified {
                    send_report(owner, &KeeperReport::Exited(exit));
                }
            }
        });
        if let ReapedChildren::NoChild = reaped {
            if let Some(drain) = &mut self.drain {
                drain.finish();
            }
            return CallStep::Empty;
        }
        if main_exited {
            send_members(owner, &descendants(std::process::id()));
        }
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.begin_killing();
        }
        let left = match (&self.deadline, &self.drain) {
            (Some(deadline), None) => Some(deadline.left()),
            _ => None,
        };
        if left.is_some_and(|left| left.is_zero()) && self.killing.is_none() {
            send_report(owner, &KeeperReport::Expired);
            self.begin_killing();
        }
        if let Some(killing) = &mut self.killing {
            return CallStep::Wait(Some(killing.step(|left| send_members(owner, left))));
        }
        let kill_at = self.kill_at;
        let kill_in = kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        // The deadline continues while the machine sleeps, but a wait does not. So the wait is limited, and the
        // deadline is checked again.
        let look_in = left.map(|left| left.min(DEADLINE_LOOK));
        CallStep::Wait(kill_in.into_iter().chain(look_in).min())
    }

    /// The message to the owner after the tree is empty.
    pub(super) fn last_report(&self) -> KeeperReport {
        if self.is_unidentified {
            KeeperReport::Failed {
                errno: rustix::io::Errno::SRCH.raw_os_error(),
                in_directory: false,
            }
        } else {
            KeeperReport::Empty
        }
    }

    pub(super) fn begin_killing(&mut self) {
        self.killing.get_or_insert_with(TreeKill::begin);
    }

    pub(super) fn detach(&mut self, path: &Path, owner: BorrowedFd<'_>) {
        let report = match OutputDrain::open(&self.output, path) {
            Ok(drain) => {
                self.drain = Some(drain);
                KeeperReport::Detached
            }
            Err(error) => KeeperReport::NotDetached {
                errno: error.raw_os_error().unwrap_or_default(),
            },
        };
        send_report(owner, &report);
    }
}

/// Start time of a child that is not reaped yet. `None` if `/proc` does not report the start time, for example because
/// no descriptor is free.
pub(super) fn start_ticks(child: u32) -> Option<u64> {
    Some(stat(child)?.start_ticks)
}

/// Sends the living members to the owner. Also reports whether a member has entered another PID namespace.
pub(super) fn send_members(owner: BorrowedFd<'_>, members: &[ProcessStat]) {
    let living = members.iter().filter(|member| !member.is_dead());
    let living = living.map(|member| (member.pid, member.start_ticks));
    send_report(owner, &KeeperReport::Members(living.collect()));
    if members.iter().any(has_entered_namespace) {
        send_report(owner, &KeeperReport::Entered);
    }
}

/// Sends a report. Never blocks the keeper, even if the owner is gone or does not read.
pub(super) fn send_report(owner: BorrowedFd<'_>, report: &KeeperReport) {
    let _unheard = send(
        owner,
        report.encode().as_bytes(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    );
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, recv, socketpair};
    use rustix::process::set_child_subreaper;

    use std::os::fd::AsFd as _;

    use rustix::process::getpid;

    use super::super::protocol::PACKET_BYTES_MAX;
    use super::*;

    /// If the command has started but `/proc` does not report its start time, the tree must be empty before the failure
    /// is reported.
    #[test]
    fn start_that_cannot_be_identified_is_killed() {
        set_child_subreaper(Some(getpid())).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, owner) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let order = StartCommand {
            cwd: "/".into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "sleep 1000 & sleep 1000".into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        };
        let (_read, output) = std::io::pipe().unwrap();
        let files = vec![output.into(), order.to_file().unwrap()];
        let call = KeeperCall::begin(1, files, owner.as_fd(), |_child| None);
        let mut call = call.expect("it has started, so it is kept");
        let main = call.main;
        let began = Instant::now();
        while let CallStep::Wait(_) = call.step(owner.as_fd()) {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "it is not killed"
            );
            std::thread::yield_now();
        }
        assert_eq!(stat(main), None);
        assert_eq!(descendants(std::process::id()), []);
        assert!(matches!(call.last_report(), KeeperReport::Failed { .. }));
        let mut packet = [0; PACKET_BYTES_MAX];
        while let Ok((len, _)) = recv(&ours, &mut packet[..], rustix::net::RecvFlags::DONTWAIT) {
            let report = KeeperReport::decode(&packet[..len]);
            let report = report.unwrap();
            assert!(matches!(report, KeeperReport::Members(_)), "{report:?}");
        }
    }
}
