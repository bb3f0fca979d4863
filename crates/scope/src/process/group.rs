//! The level `group_and_marker`: an own process group, a marker, and a sweep of `/proc`.
//!
//! Invariants:
//! 1. The main process is reaped only after a sweep has found nothing: until then it pins the number of its group, so
//!    that the whole group can be killed in one step.
//! 2. Emptiness of the group is then proved by the kernel (`kill(-group, 0)` says that there is no such group).

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{Containment, Verified};
use futures::future::join_all;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, test_kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep_until};

use super::driver::ProcessDriver;
use super::handle::{Lever, Shared, detach_channel};
use super::identity::{identity, raw_pid};
use super::procfs::{Stat, stat};
use super::readiness::{Watched, watch};
use super::spec::{LaunchError, ProcessSpec};
use super::start::{directory_error, prepare};
use super::status::{ExitInfo, Member, ProcessStatus};
use super::sweep::Sweep;
use super::tree::{as_members, kill_pinned_group, signal_each};

/// How soon a force is repeated at first: a killed process is gone within a millisecond, a sweep takes about one.
const FORCE_REPEAT_MIN: Duration = Duration::from_millis(2);
/// How slowly it is repeated at last, for a process in an uninterruptible wait or of another user.
const FORCE_REPEAT_MAX: Duration = Duration::from_millis(100);

struct GroupLever(Arc<Sweep>);

impl Lever for GroupLever {
    fn ask(&self) {
        signal_each(&self.0.members(), rustix::process::Signal::TERM);
    }

    fn force(&self) {
        signal_each(&self.0.members(), rustix::process::Signal::KILL);
    }

    fn members(&self) -> Vec<Member> {
        as_members(&self.0.members())
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    output: std::io::PipeWriter,
    status: Sender<ProcessStatus>,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let mut program = Command::new(&spec.program);
    program.args(&spec.args);
    let mut command = prepare(program, spec, output)?;
    let child = command.spawn().map_err(|source| {
        directory_error(spec)
            .unwrap_or_else(|| LaunchError::Program { program: spec.program.clone(), source })
    })?;
    // Closes this process's ends of the output pipe.
    drop(command);
    let see = |child: &Child| -> std::io::Result<_> {
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        let pid = child.id().and_then(|pid| stat(pid));
        let main = pid.ok_or(gone)?;
        let raw = raw_pid(main.pid).ok_or(std::io::ErrorKind::NotFound)?;
        let descriptor = watch(Arc::new(pidfd_open(raw, PidfdFlags::empty())?))?;
        Ok((identity(main.pid, main.start_ticks), descriptor))
    };
    let (main, descriptor) = see(&child).map_err(LaunchError::setup("descriptor"))?;
    status.send_modify(|now| now.main = Some(main.clone()));
    let sweep = Arc::new(Sweep::new(Arc::clone(&spec.marker), main, None));
    // Nobody reads requests to detach: the handle refuses them without a keeper.
    let (detach_tx, _) = detach_channel();
    let lever = Box::new(GroupLever(Arc::clone(&sweep)));
    let shared = Shared::new(Arc::clone(&spec.marker), Containment::GroupAndMarker, None, lever, detach_tx);
    let group = Group {
        child,
        descriptor,
        sweep,
        shared: Arc::clone(&shared),
        status,
        reaped: false,
        over: false,
    };
    Ok((shared, ProcessDriver::new(group.drive())))
}

struct Group {
    child: Child,
    descriptor: Watched,
    sweep: Arc<Sweep>,
    shared: Arc<Shared>,
    status: Sender<ProcessStatus>,
    reaped: bool,
    over: bool,
}

enum Event {
    MainExited,
    Forced,
    Look,
}

impl Group {
    async fn drive(mut self) {
        let mut force_pause = None;
        let mut exited = false;
        // The living members, once the main process has exited.
        let mut left: Vec<Watched> = Vec::new();
        loop {
            let repeat_at = force_pause.map(|pause| Instant::now() + pause);
            let event = tokio::select! {
                _ = self.descriptor.readable(), if !exited => Event::MainExited,
                () = self.shared.forced.notified() => Event::Forced,
                () = all_ended(&left), if exited => Event::Look,
                () = sleep_until(repeat_at.unwrap_or_else(Instant::now)), if repeat_at.is_some() => Event::Look,
            };
            match event {
                Event::MainExited => {
                    exited = true;
                    self.publish_exit();
                }
                Event::Forced => force_pause = Some(FORCE_REPEAT_MIN),
                Event::Look => force_pause = force_pause.map(|pause| FORCE_REPEAT_MAX.min(pause * 2)),
            }
            if force_pause.is_some() {
                self.kill();
            }
            if exited {
                let members = self.sweep.members();
                if members.is_empty() && self.reap_and_prove().await {
                    self.over = true;
                    self.status.send_modify(|now| now.empty = Some(Verified::ProcessGroupEmpty));
                    return;
                }
                left = members.iter().filter_map(watch_end).collect();
            }
        }
    }

    fn publish_exit(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let seen = waitid(WaitId::PidFd(self.descriptor.get_ref().as_fd()), options);
        let exit = match seen {
            Ok(Some(ended)) => match (ended.exit_status(), ended.terminating_signal()) {
                (Some(code), _) => ExitInfo::Code(code),
                (None, Some(signal)) => ExitInfo::Signal(signal),
                (None, None) => ExitInfo::Unknown,
            },
            _ => ExitInfo::Unknown,
        };
        self.status.send_modify(|now| now.exited = Some(exit));
    }

    fn kill(&self) {
        if !self.reaped {
            kill_pinned_group(self.sweep.main().pid);
        }
        signal_each(&self.sweep.members(), rustix::process::Signal::KILL);
    }

    /// Whether the group, which the sweep has found empty, has no member.
    async fn reap_and_prove(&mut self) -> bool {
        if !self.reaped {
            // It has exited, so this does not wait. An error means that something else reaped it.
            let _status = self.child.wait().await;
            self.reaped = true;
        }
        raw_pid(self.sweep.main().pid).is_none_or(|group| test_kill_process_group(group).is_err())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.over {
            self.kill();
        }
    }
}

/// `None` if it has ended already.
fn watch_end(member: &Stat) -> Option<Watched> {
    let descriptor = pidfd_open(raw_pid(member.pid)?, PidfdFlags::empty()).ok()?;
    watch(Arc::new(descriptor)).ok()
}

async fn all_ended(members: &[Watched]) {
    join_all(members.iter().map(|member| member.readable())).await;
}
