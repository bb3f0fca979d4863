//! The driver of a group: reaps the main process, repeats SIGKILL after a call of `force`, and proves that the process
//! tree is empty.
//!
//! Invariants:
//! 1. The whole group is killed in one step only while the main process is not reaped. As long as the main process is
//!    not reaped, running or ended, no other group can get its number. If `force` is called before the end of the main
//!    process, the main process is not reaped until no member of the tree is left.
//! 2. Without a call of `force`, the main process is reaped as soon as it ends, so that waiters get its end.
//! 3. Only sweeps (searches of all processes) prove that the tree is empty ([`EmptinessProof`]). The existence of the
//!    group is no proof. A group no longer exists after its last member has moved to another group. A group of unreaped
//!    zombies still exists.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::EndProof;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use tokio::process::Child;
use tokio::time::{Instant, sleep_until};

use crate::identity::raw_pid;
use crate::status::ExitInfo;
use crate::status_channel::StatusSender;

use super::group::GroupContainment;
use super::procfs::ProcessStat;
use super::procfs_reader::read_on_thread;
use super::readiness::{WatchedDescriptor, watch};
use super::sweep::{EmptinessProof, SweepResult};

/// First pause before the kill is repeated. A killed process is gone within a millisecond, and a sweep takes about a
/// millisecond.
const REPEAT_MIN: Duration = Duration::from_millis(2);
/// Longest pause before the kill is repeated, if a process is in an uninterruptible wait or belongs to another user.
const REPEAT_MAX: Duration = Duration::from_millis(100);

/// Watches one group until sweeps prove that its tree is empty.
pub(super) struct GroupDriver {
    child: Child,
    descriptor: WatchedDescriptor,
    containment: Arc<GroupContainment>,
    status: StatusSender,
    exited: bool,
    reaped: bool,
    over: bool,
    /// The members that the last sweep after the exit of the main process found alive.
    left: Vec<WatchedDescriptor>,
    emptiness: EmptinessProof,
    /// The next pause before the kill is repeated. `None` before a call of `force`.
    force_pause: Option<Duration>,
    look_at: Option<Instant>,
    /// The sweep in progress. At most one sweep runs at a time.
    looking: Option<BoxFuture<'static, Option<SweepResult>>>,
}

enum GroupEvent {
    MainExited,
    Forced,
    LookDue,
    /// `None` if the system provided no thread for the sweep.
    Looked(Option<SweepResult>),
}

impl GroupDriver {
    pub(super) fn new(
        child: Child,
        descriptor: WatchedDescriptor,
        containment: Arc<GroupContainment>,
        status: StatusSender,
    ) -> Self {
        Self {
            child,
            descriptor,
            containment,
            status,
            exited: false,
            reaped: false,
            over: false,
            left: Vec::new(),
            emptiness: EmptinessProof::default(),
            force_pause: None,
            look_at: None,
            looking: None,
        }
    }

    pub(super) async fn drive(mut self) {
        while !self.over {
            let looking = self.looking.is_some();
            let event = tokio::select! {
                _ = self.descriptor.readable(), if !self.exited => GroupEvent::MainExited,
                () = self.containment.forced.notified() => GroupEvent::Forced,
                found = looked(&mut self.looking), if looking => GroupEvent::Looked(found),
                () = all_ended(&self.left), if !self.left.is_empty() && !looking => GroupEvent::LookDue,
                () = sleep_until(self.look_at.unwrap_or_else(Instant::now)), if self.look_at.is_some() && !looking => GroupEvent::LookDue,
            };
            self.handle(event);
        }
        self.containment.known.set(Vec::new());
        self.status.emptied(EndProof::ProcessGroupEmpty);
    }

    fn handle(&mut self, event: GroupEvent) {
        match event {
            // The handle has already killed the group. The next sweep finds members that have left the group.
            GroupEvent::Forced => {
                self.force_pause = Some(REPEAT_MIN);
                self.look_at = Some(Instant::now());
            }
            GroupEvent::MainExited => {
                self.exited = true;
                self.publish_exit();
                self.look_at = Some(Instant::now());
            }
            GroupEvent::LookDue => self.begin_look(),
            GroupEvent::Looked(found) => {
                self.looking = None;
                self.force_pause = self.force_pause.map(|pause| REPEAT_MAX.min(pause * 2));
                let Some(found) = found else {
                    self.look_at = Some(Instant::now() + REPEAT_MAX);
                    return;
                };
                self.containment.known.set_stats(&found.members);
                if self.exited {
                    self.apply_sweep(&found);
                } else {
                    self.look_at = self.force_pause.map(|pause| Instant::now() + pause);
                }
            }
        }
    }

    fn begin_look(&mut self) {
        self.look_at = None;
        let (sweep, is_forced) = (
            Arc::clone(&self.containment.sweep),
            self.force_pause.is_some(),
        );
        let sweeping = read_on_thread(move || {
            let found = sweep.find();
            if is_forced {
                sweep.kill(&found.members);
            }
            found
        });
        self.looking = Some(sweeping.boxed());
    }

    fn apply_sweep(&mut self, found: &SweepResult) {
        let members = &found.members;
        if members.is_empty() || self.force_pause.is_none() {
            self.reap();
        }
        self.over = self.emptiness.is_proved_by(found);
        self.left = members.iter().filter_map(watch_end).collect();
        // Before a call of `force`, the end of a watched member causes the next sweep. Another sweep is planned here
        // only if some members cannot be watched, or to confirm a sweep that found no member.
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
            Ok(Some(ended)) => ExitInfo::new(ended.exit_status(), ended.terminating_signal()),
            _ => ExitInfo::Unknown,
        };
        self.status.exited(exit);
    }

    fn reap(&mut self) {
        if !self.reaped {
            self.reaped = true;
            self.containment.sweep.unpin();
            // The main process has exited, so `try_wait` reaps it. If `try_wait` fails, other code has already reaped
            // the process.
            let _status = self.child.try_wait();
        }
    }
}

impl Drop for GroupDriver {
    fn drop(&mut self) {
        if !self.over {
            let sweep = &self.containment.sweep;
            sweep.kill(&sweep.members());
        }
    }
}

/// `None` if the member has already ended.
fn watch_end(member: &ProcessStat) -> Option<WatchedDescriptor> {
    let descriptor = pidfd_open(raw_pid(member.pid)?, PidfdFlags::empty()).ok()?;
    watch(Arc::new(descriptor)).ok()
}

async fn looked(
    looking: &mut Option<BoxFuture<'static, Option<SweepResult>>>,
) -> Option<SweepResult> {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

async fn all_ended(members: &[WatchedDescriptor]) {
    join_all(members.iter().map(WatchedDescriptor::readable)).await;
}
