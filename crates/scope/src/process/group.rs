//! The level `group_and_marker`: an own process group, a marker, and a sweep of `/proc`.
//!
//! Invariants:
//! 1. The whole group is killed in one step only while the main process, ended or not, is unreaped and so pins its
//!    number. A force before its end keeps it unreaped until nobody is left.
//! 2. Without a force it is reaped as soon as it ends, so that whoever waits for its end sees it.
//! 3. Empty is what sweeps prove, [`Emptiness`]. What the kernel knows of the group is no proof: it forgets a group whose
//!    last member has gone on to another, and remembers one of zombies that nobody reaps.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{Containment, Verified};
use futures::future::join_all;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use super::driver::ProcessDriver;
use super::handle::{Lever, Shared, detach_channel};
use super::identity::{identity, raw_pid};
use super::procfs::{Stat, stat};
use super::readiness::{Watched, watch};
use super::spec::{LaunchError, ProcessSpec};
use super::start::{directory_error, prepare};
use super::status::{ExitInfo, Member};
use super::status_channel::StatusSender;
use super::sweep::{Emptiness, Found, Sweep};
use super::tree::{as_members, signal_each};

/// How soon a force is repeated at first: a killed process is gone within a millisecond, a sweep takes about one.
const REPEAT_MIN: Duration = Duration::from_millis(2);
/// How slowly it is repeated at last, for a process in an uninterruptible wait or of another user.
const REPEAT_MAX: Duration = Duration::from_millis(100);

struct GroupLever(Arc<Sweep>);

impl Lever for GroupLever {
    fn ask(&self) {
        signal_each(&self.0.members(), rustix::process::Signal::TERM);
    }

    fn force(&self) {
        self.0.kill(&self.0.members());
    }

    fn members(&self) -> Vec<Member> {
        as_members(&self.0.members())
    }
}

pub(super) fn launch(
    spec: &ProcessSpec,
    output: std::io::PipeWriter,
    status: StatusSender,
) -> Result<(Arc<Shared>, ProcessDriver), LaunchError> {
    let mut program = Command::new(&spec.program);
    program.args(&spec.args);
    let mut command = prepare(program, spec, output)?;
    let child = command.spawn().map_err(|source| {
        directory_error(spec).unwrap_or_else(|| LaunchError::Program {
            program: spec.program.clone(),
            source,
        })
    })?;
    // Closes this process's ends of the output pipe.
    drop(command);
    let see = |child: &Child| -> std::io::Result<_> {
        let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
        let pid = child.id().and_then(stat);
        let main = pid.ok_or(gone)?;
        let raw = raw_pid(main.pid).ok_or(std::io::ErrorKind::NotFound)?;
        let descriptor = watch(Arc::new(pidfd_open(raw, PidfdFlags::empty())?))?;
        Ok((identity(main.pid, main.start_ticks), descriptor))
    };
    let (main, descriptor) = see(&child).map_err(LaunchError::setup("descriptor"))?;
    status.send_modify(|now| now.main = Some(main.clone()));
    let sweep = Arc::new(Sweep::of_child(Arc::clone(&spec.marker), main));
    // Nobody reads requests to detach: the handle refuses them without a keeper.
    let (detach_tx, _) = detach_channel();
    let lever = Box::new(GroupLever(Arc::clone(&sweep)));
    let shared = Shared::new(
        Arc::clone(&spec.marker),
        Containment::GroupAndMarker,
        None,
        lever,
        detach_tx,
    );
    let group = Group {
        child,
        descriptor,
        sweep,
        shared: Arc::clone(&shared),
        status,
        exited: false,
        reaped: false,
        over: false,
        left: Vec::new(),
        emptiness: Emptiness::default(),
        force_pause: None,
        look_at: None,
    };
    Ok((shared, ProcessDriver::new(group.drive())))
}

struct Group {
    child: Child,
    descriptor: Watched,
    sweep: Arc<Sweep>,
    shared: Arc<Shared>,
    status: StatusSender,
    exited: bool,
    reaped: bool,
    over: bool,
    /// The living members as the last sweep found them, once the main process has exited.
    left: Vec<Watched>,
    emptiness: Emptiness,
    /// Set while forcing.
    force_pause: Option<Duration>,
    look_at: Option<Instant>,
}

enum Event {
    MainExited,
    Forced,
    Look,
}

impl Group {
    async fn drive(mut self) {
        while !self.over {
            let event = tokio::select! {
                _ = self.descriptor.readable(), if !self.exited => Event::MainExited,
                () = self.shared.forced.notified() => Event::Forced,
                () = all_ended(&self.left), if !self.left.is_empty() => Event::Look,
                () = sleep_until(self.look_at.unwrap_or_else(Instant::now)), if self.look_at.is_some() => Event::Look,
            };
            self.handle(&event);
        }
        self.status
            .send_modify(|now| now.set_empty(Verified::ProcessGroupEmpty));
    }

    fn handle(&mut self, event: &Event) {
        match event {
            // Everyone has just been killed by the handle; what that missed is found soon.
            Event::Forced => {
                self.force_pause = Some(REPEAT_MIN);
                self.look_at = Some(Instant::now() + REPEAT_MIN);
                return;
            }
            Event::Look => {
                self.force_pause = self.force_pause.map(|pause| REPEAT_MAX.min(pause * 2));
            }
            Event::MainExited => {
                self.exited = true;
                self.publish_exit();
            }
        }
        let found = self.sweep.find();
        if self.force_pause.is_some() {
            self.sweep.kill(&found.members);
        }
        if self.exited {
            self.look(&found);
        } else {
            self.look_at = self.force_pause.map(|pause| Instant::now() + pause);
        }
    }

    fn look(&mut self, found: &Found) {
        let members = &found.members;
        if members.is_empty() || self.force_pause.is_none() {
            self.reap();
        }
        self.over = self.emptiness.is_proved_by(found);
        self.left = members.iter().filter_map(watch_end).collect();
        // Also without a force if some cannot be watched, and to confirm an empty sweep.
        let pause = self
            .force_pause
            .or((self.left.len() < members.len()).then_some(REPEAT_MAX));
        let pause = if members.is_empty() {
            Some(REPEAT_MIN)
        } else {
            pause
        };
        self.look_at = pause.map(|pause| Instant::now() + pause);
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

    fn reap(&mut self) {
        if !self.reaped {
            self.reaped = true;
            self.sweep.unpin();
            // It has exited, so this finds it. An error means that something else has reaped it.
            let _status = self.child.try_wait();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.over {
            self.sweep.kill(&self.sweep.members());
        }
    }
}

/// `None` if it has ended already.
fn watch_end(member: &Stat) -> Option<Watched> {
    let descriptor = pidfd_open(raw_pid(member.pid)?, PidfdFlags::empty()).ok()?;
    watch(Arc::new(descriptor)).ok()
}

async fn all_ended(members: &[Watched]) {
    join_all(members.iter().map(Watched::readable)).await;
}
