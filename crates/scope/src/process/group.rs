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

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, Verified};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use super::driver::ProcessDriver;
use super::handle::{KnownMembers, Lever, Shared, detach_channel};
use super::identity::{identity, raw_pid};
use super::look::{begin, look};
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

struct GroupLever {
    sweep: Arc<Sweep>,
    known: Arc<KnownMembers>,
}

impl Lever for GroupLever {
    fn ask(&self) {
        let sweep = Arc::clone(&self.sweep);
        let ask = move || signal_each(&sweep.members(), rustix::process::Signal::TERM);
        if begin(ask.clone()).is_none() {
            // The system gives no thread: better late than not at all.
            ask();
        }
    }

    // The driver finds the rest.
    fn force(&self) {
        self.sweep.kill_group();
    }

    fn members(&self) -> BoxFuture<'static, Vec<Member>> {
        let sweep = Arc::clone(&self.sweep);
        look(move || as_members(&sweep.members()))
            .map(Option::unwrap_or_default)
            .boxed()
    }

    fn known(&self) -> Vec<ProcessIdentity> {
        self.known.get()
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
    let sweep = Arc::new(Sweep::of_child(Arc::clone(&spec.marker), main.clone()));
    // Nobody reads requests to detach: the handle refuses them without a keeper.
    let (detach_tx, _) = detach_channel();
    let known = Arc::<KnownMembers>::default();
    known.set(vec![main]);
    let lever = Box::new(GroupLever {
        sweep: Arc::clone(&sweep),
        known: Arc::clone(&known),
    });
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
        known,
        shared: Arc::clone(&shared),
        status,
        exited: false,
        reaped: false,
        over: false,
        left: Vec::new(),
        emptiness: Emptiness::default(),
        force_pause: None,
        look_at: None,
        looking: None,
    };
    Ok((shared, ProcessDriver::new(group.drive())))
}

struct Group {
    child: Child,
    descriptor: Watched,
    sweep: Arc<Sweep>,
    known: Arc<KnownMembers>,
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
    /// The look that is under way: one at a time.
    looking: Option<BoxFuture<'static, Option<Found>>>,
}

enum Event {
    MainExited,
    Forced,
    LookDue,
    /// `None`: the system gave no thread to look on.
    Looked(Option<Found>),
}

impl Group {
    async fn drive(mut self) {
        while !self.over {
            let looking = self.looking.is_some();
            let event = tokio::select! {
                _ = self.descriptor.readable(), if !self.exited => Event::MainExited,
                () = self.shared.forced.notified() => Event::Forced,
                found = looked(&mut self.looking), if looking => Event::Looked(found),
                () = all_ended(&self.left), if !self.left.is_empty() && !looking => Event::LookDue,
                () = sleep_until(self.look_at.unwrap_or_else(Instant::now)), if self.look_at.is_some() && !looking => Event::LookDue,
            };
            self.handle(event);
        }
        self.known.set(Vec::new());
        self.status
            .send_modify(|now| now.set_empty(Verified::ProcessGroupEmpty));
    }

    fn handle(&mut self, event: Event) {
        match event {
            // The group has just been killed by the handle; whoever has left it is found now.
            Event::Forced => {
                self.force_pause = Some(REPEAT_MIN);
                self.look_at = Some(Instant::now());
            }
            Event::MainExited => {
                self.exited = true;
                self.publish_exit();
                self.look_at = Some(Instant::now());
            }
            Event::LookDue => self.begin_look(),
            Event::Looked(found) => {
                self.looking = None;
                self.force_pause = self.force_pause.map(|pause| REPEAT_MAX.min(pause * 2));
                let Some(found) = found else {
                    self.look_at = Some(Instant::now() + REPEAT_MAX);
                    return;
                };
                self.known.set_stats(&found.members);
                if self.exited {
                    self.look(&found);
                } else {
                    self.look_at = self.force_pause.map(|pause| Instant::now() + pause);
                }
            }
        }
    }

    fn begin_look(&mut self) {
        self.look_at = None;
        let (sweep, is_forced) = (Arc::clone(&self.sweep), self.force_pause.is_some());
        let sweeping = look(move || {
            let found = sweep.find();
            if is_forced {
                sweep.kill(&found.members);
            }
            found
        });
        self.looking = Some(sweeping.boxed());
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

async fn looked(looking: &mut Option<BoxFuture<'static, Option<Found>>>) -> Option<Found> {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

async fn all_ended(members: &[Watched]) {
    join_all(members.iter().map(Watched::readable)).await;
}
