//! Keepers: small helper processes that start commands and contain their process trees. Keepers are started on demand,
//! and each keeper serves one call (command) after another.
//!
//! A keeper becomes idle only if its tree is empty. The keeper then has no child, so no process of a call is left when
//! the next call begins. The start of a keeper costs more than the rest of a short command. Therefore a few idle
//! keepers are kept.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use allstop_core::process::ProcessIdentity;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::command_slots::{CommandSlot, CommandSlots};
use crate::identity::raw_pid;
use crate::keeper_program::KeeperProgram;
use crate::launch_error::LaunchError;

use super::adopted::InheritedChildren;
use super::identity::identity_of;
use super::owner_deadline::OwnerDeadline;

/// Maximum number of idle keepers. A model seldom runs more commands at the same time. Each keeper uses about 3 MB of
/// memory, but the keepers share most of this memory.
const IDLE_KEEPERS_MAX: usize = 4;
/// Maximum time that [`Keepers::close`] waits for the idle keepers to exit.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// Starts keepers and stores the idle keepers. Create one value per program; clones of the [`Arc`] share it.
#[derive(Debug)]
pub struct Keepers {
    program: KeeperProgram,
    /// The children that this process had before its first keeper. `None` if this process is no subreaper.
    inherited: Option<InheritedChildren>,
    /// Deadline of all trees that are started after the deadline was first set. Empty until then.
    deadline: OnceLock<OwnerDeadline>,
    /// Limit of the commands that run at the same time. Empty until the limit is set.
    slots: OnceLock<CommandSlots>,
    pool: Mutex<KeeperPool>,
}

#[derive(Debug, Default)]
struct KeeperPool {
    closed: bool,
    idle: Vec<KeeperProcess>,
    /// Keepers that were killed or released, but are not reaped yet.
    ending: Vec<Child>,
}

/// A running keeper. Dropping this value closes the socket; the keeper then kills its tree and exits.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    pub(super) identity: ProcessIdentity,
    pub(super) socket: Arc<OwnedFd>,
    /// Identifies the process without `/proc`, and becomes readable when the process ends.
    pub(super) pidfd: Arc<OwnedFd>,
    /// Number of calls that the keeper has served.
    pub(super) calls: u64,
    child: Child,
    /// `None` for an idle keeper, and without a limit.
    slot: Option<CommandSlot>,
}

impl Keepers {
    /// Creates keepers that run this program. The calling process is not changed.
    pub fn new(program: KeeperProgram) -> Arc<Self> {
        Arc::new(Self {
            program,
            inherited: None,
            deadline: OnceLock::new(),
            slots: OnceLock::new(),
            pool: Mutex::default(),
        })
    }

    /// Like [`Keepers::new`], but makes the calling process a *child subreaper*. If a keeper is killed, its tree then
    /// becomes a child of this process, which can kill the tree and prove its end. Children that the process already
    /// has are not changed. Use this function only in a program that controls its whole process, not in a library
    /// inside another program.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn with_subreaper(program: KeeperProgram) -> io::Result<Arc<Self>> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Arc::new(Self {
            program,
            inherited: Some(InheritedChildren::now()),
            deadline: OnceLock::new(),
            slots: OnceLock::new(),
            pool: Mutex::default(),
        }))
    }

    /// Sets the deadline of all trees to this time from now. At the deadline, the keepers kill the trees, even if this
    /// process hangs. The deadline does not apply to trees that were started before the first call of this function,
    /// and not to detached trees. Call this function with [`Duration::MAX`] before the first tree starts, if the time is
    /// not known yet.
    ///
    /// # Errors
    /// If the system has no memory for the deadline. Then the deadline does not change.
    pub fn postpone_deadline(&self, left: Duration) -> io::Result<()> {
        if let Some(deadline) = self.deadline.get() {
            return deadline.put_off(left);
        }
        // Another thread may have set the deadline first. The next call of this function then postpones that deadline.
        let _first = self.deadline.set(OwnerDeadline::new(left)?);
        Ok(())
    }

    /// Limits the commands that run at the same time and were started with [`ContainmentChoice::reserved`]. Each command
    /// needs several descriptors, and a command that does not get them fails. The first limit counts.
    ///
    /// [`ContainmentChoice::reserved`]: crate::ContainmentChoice::reserved
    pub fn limit_commands(&self, max: usize) {
        let _first = self.slots.set(CommandSlots::new(max));
    }

    /// Waits for the slot of a command; `None` without a limit.
    ///
    /// # Errors
    /// If no slot is free within this time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn take_slot(
        &self,
        wait_max: Duration,
    ) -> Result<Option<CommandSlot>, LaunchError> {
        match self.slots.get() {
            Some(slots) => slots.take(wait_max).await.map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn deadline(&self) -> Option<&OwnerDeadline> {
        self.deadline.get()
    }

    /// Ends the idle keepers, and waits briefly until they have ended. From now on, no keeper becomes idle.
    pub fn close(&self) {
        let mut pool = self.pool.lock();
        pool.closed = true;
        let idle = std::mem::take(&mut pool.idle);
        drop(pool);
        let until = Instant::now() + CLOSE_WAIT;
        for keeper in &idle {
            keeper.kill();
        }
        for keeper in idle {
            keeper.wait_ended(until.saturating_duration_since(Instant::now()));
            self.reap_later(keeper);
        }
    }

    /// Children that this process had before its first keeper. `None` if this process is no subreaper.
    pub(super) fn inherited(&self) -> Option<&InheritedChildren> {
        self.inherited.as_ref()
    }

    /// Takes an idle keeper, or starts a new keeper. The environment of a new keeper does not contain the hidden
    /// variables. The keeper holds the slot until its tree is empty.
    pub(super) fn take(
        &self,
        hidden: &[OsString],
        slot: Option<CommandSlot>,
    ) -> Result<KeeperProcess, LaunchError> {
        let keeper = self.idle_or_new(hidden)?;
        Ok(KeeperProcess { slot, ..keeper })
    }

    fn idle_or_new(&self, hidden: &[OsString]) -> Result<KeeperProcess, LaunchError> {
        loop {
            let idle = self.pool.lock().idle.pop();
            let Some(keeper) = idle else { break };
            if keeper.is_alive() {
                return Ok(keeper);
            }
            self.reap_later(keeper);
        }
        self.start(hidden)
    }

    /// Makes a keeper idle. Its tree must be empty.
    pub(super) fn give_back(&self, mut keeper: KeeperProcess) {
        keeper.slot = None;
        let mut pool = self.pool.lock();
        if !pool.closed && pool.idle.len() < IDLE_KEEPERS_MAX {
            pool.idle.push(keeper);
            return;
        }
        drop(pool);
        keeper.kill();
        self.reap_later(keeper);
    }

    /// Reaps this keeper after it has ended. Also reaps earlier keepers that have ended.
    pub(super) fn reap_later(&self, keeper: KeeperProcess) {
        let mut pool = self.pool.lock();
        pool.ending.push(keeper.child);
        pool.ending
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn start(&self, hidden: &[OsString]) -> Result<KeeperProcess, LaunchError> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| LaunchError::setup("socket to the keeper")(errno.into()))?;
        let mut command = Command::new(&self.program.executable);
        for name in hidden {
            command.env_remove(name);
        }
        let child = command
            .args(&self.program.args)
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The keeper is in its own group, so a key at the terminal, such as Ctrl-C, does not signal it.
            .process_group(0)
            .spawn()
            .map_err(|source| LaunchError::Keeper {
                executable: self.program.executable.clone(),
                source,
            })?;
        // Only this process can reap the keeper, so the pid stays valid even if the keeper has ended. Therefore the
        // pidfd can be opened, and the identity can be read.
        let pid = child.id();
        let seen = || -> io::Result<_> {
            let gone = || io::Error::from(io::ErrorKind::NotFound);
            let pidfd = pidfd_open(raw_pid(pid).ok_or_else(gone)?, PidfdFlags::empty())?;
            Ok((identity_of(pid).ok_or_else(gone)?, Arc::new(pidfd)))
        };
        match seen() {
            Ok((identity, pidfd)) => Ok(KeeperProcess {
                identity,
                socket: Arc::new(ours),
                pidfd,
                calls: 0,
                child,
                slot: None,
            }),
            Err(source) => {
                // The keeper exits when its socket closes.
                self.pool.lock().ending.push(child);
                Err(LaunchError::setup("descriptor of the keeper")(source))
            }
        }
    }
}

impl Drop for Keepers {
    fn drop(&mut self) {
        self.close();
    }
}

impl KeeperProcess {
    pub(super) fn kill(&self) {
        // The signal fails if the keeper has already ended.
        let _gone = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    fn is_alive(&self) -> bool {
        !self.wait_ended(Duration::ZERO)
    }

    fn wait_ended(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).ok();
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut ended, limit.as_ref()), Ok(1..))
    }
}
