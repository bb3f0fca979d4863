//! The cheap, cloneable handle of a running process tree.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, EndMethod, EndProof};
use tokio::time::Instant;

use crate::containment::{DetachTreeError, TreeContainment};
use crate::launch_error::LaunchError;
use crate::status::{ExitInfo, ProcessStatus, ProcessWaitError, TreeMember};
use crate::status_channel::{StatusClosed, StatusReceiver};

/// Handle of a running process tree. The handle can signal the tree, wait for it, and inspect it.
///
/// Clones refer to the same tree. Dropping the handle stops nothing; dropping the
/// [`ProcessDriver`](crate::ProcessDriver) kills the tree.
#[derive(Clone)]
#[must_use = "a handle is the only way to stop the process"]
pub struct ProcessHandle {
    inner: Arc<HandleInner>,
    status: StatusReceiver,
}

struct HandleInner {
    marker: Arc<str>,
    containment: Arc<dyn TreeContainment>,
    /// 1 after a call of `ask`, 2 after a call of `force`.
    strongest: AtomicU8,
    first_signal: OnceLock<Instant>,
}

impl HandleInner {
    fn note_signal(&self, strength: u8) {
        self.first_signal.get_or_init(Instant::now);
        self.strongest.fetch_max(strength, Ordering::AcqRel);
    }
}

impl ProcessHandle {
    pub(crate) fn new(
        marker: Arc<str>,
        containment: Arc<dyn TreeContainment>,
        status: StatusReceiver,
    ) -> Self {
        let inner = Arc::new(HandleInner {
            marker,
            containment,
            strongest: AtomicU8::new(0),
            first_signal: OnceLock::new(),
        });
        Self { inner, status }
    }

    /// The main process. `None` until the keeper has started it.
    pub fn identity(&self) -> Option<ProcessIdentity> {
        self.status.borrow().main.clone()
    }

    /// The keeper. `None` if the tree has no keeper.
    pub fn keeper_identity(&self) -> Option<&ProcessIdentity> {
        self.inner.containment.keeper()
    }

    /// The marker: a unique value in the environment of the tree's processes.
    pub fn marker(&self) -> &Arc<str> {
        &self.inner.marker
    }

    /// The level of containment of the tree.
    pub fn containment(&self) -> Containment {
        self.inner.containment.level()
    }

    /// The status, which can be read at any time.
    pub fn status(&self) -> StatusReceiver {
        self.status.clone()
    }

    /// Sends SIGTERM to every member of the tree. A member that starts later does not get the signal.
    pub fn ask(&self) {
        if self.is_over() {
            return;
        }
        self.inner.note_signal(1);
        self.inner.containment.ask();
    }

    /// Sends SIGKILL to every member of the tree, repeatedly, until no member is left.
    pub fn force(&self) {
        if self.is_over() {
            return;
        }
        self.inner.note_signal(2);
        self.inner.containment.force();
    }

    /// The strongest signal that was requested before the tree was known to be empty.
    pub fn strongest_signal(&self) -> Option<EndMethod> {
        match self.inner.strongest.load(Ordering::Acquire) {
            0 => None,
            1 => Some(EndMethod::Sigterm),
            _ => Some(EndMethod::Sigkill),
        }
    }

    /// Time from the first signal to the proof that the tree is empty. `None` if there is no proof yet, or if the tree
    /// got no signal.
    pub fn stopped_after(&self) -> Option<Duration> {
        let empty_at = self.status.borrow().empty_at?;
        let first_signal = self.inner.first_signal.get()?;
        Some(empty_at.saturating_duration_since(*first_signal))
    }

    /// Proof that no process of the tree is left. `None` if there is no proof yet.
    pub fn emptiness(&self) -> Option<EndProof> {
        self.status.borrow().empty
    }

    /// The members that are alive now. A separate thread reads `/proc`, which takes about a millisecond on a machine
    /// with a few hundred processes.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn members(&self) -> Vec<TreeMember> {
        if self.emptiness().is_some() {
            return Vec::new();
        }
        let members = self.inner.containment.members().await;
        // The tree may have become empty in the meantime. The keeper may then already run another command, whose
        // processes are not members of this tree.
        if self.emptiness().is_some() {
            return Vec::new();
        }
        members
    }

    /// The members that the last search found. This process searches when the tree starts, when the main process of the
    /// tree ends, and at each call of `members`, `ask` or `force`. Does not query the system, so any code can call this function.
    pub fn known_members(&self) -> Vec<ProcessIdentity> {
        if self.emptiness().is_some() {
            return Vec::new();
        }
        self.inner.containment.known_members()
    }

    /// Waits until the command has started, and returns its main process.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_started(&self) -> Result<ProcessIdentity, Arc<LaunchError>> {
        let started = |now: &ProcessStatus| match (&now.main, &now.failed) {
            (Some(main), _) => Some(Ok(main.clone())),
            (None, failed) => failed.clone().map(Err),
        };
        let seen = self.status.wait_for(started).await;
        seen.unwrap_or_else(|StatusClosed| Err(Arc::new(LaunchError::KeeperLost)))
    }

    /// Waits until the main process has ended. Its descendants may still run.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_exited(&self) -> Result<ExitInfo, ProcessWaitError> {
        self.wait_for(|status| status.exited).await
    }

    /// Waits until no process of the tree is left, and returns the proof.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_empty(&self) -> Result<EndProof, ProcessWaitError> {
        self.wait_for(|status| status.empty).await
    }

    /// Detaches the tree, so that the tree outlives this process. From now on, the keeper appends further output to
    /// `output_file` (up to [`DETACHED_OUTPUT_BYTES_MAX`](crate::DETACHED_OUTPUT_BYTES_MAX)), and holds a shared lock
    /// on the file. The keeper no longer ends the tree when the connection to its owner (this process) closes. The file
    /// also gets the output that the [`OutputReader`](crate::OutputReader) has not read before the detach.
    ///
    /// Afterwards, this process does not watch the tree, and waits return [`ProcessWaitError::Detached`]. To end the
    /// tree, send SIGTERM to the keeper, which is found by its identity. The keeper then sends SIGTERM to its tree,
    /// sends SIGKILL after a grace period, and exits.
    ///
    /// # Cancel safety
    /// Once the driver has received the request, the request is carried out, even if the future is dropped.
    pub async fn detach(&self, output_file: &Path) -> Result<(), DetachTreeError> {
        self.inner.containment.detach(output_file).await
    }

    fn is_over(&self) -> bool {
        let status = self.status.borrow();
        status.empty.is_some() || status.detached
    }

    async fn wait_for<T: Copy>(
        &self,
        read: impl Fn(&ProcessStatus) -> Option<T>,
    ) -> Result<T, ProcessWaitError> {
        let seen = |now: &ProcessStatus| match (read(now), &now.failed) {
            (Some(value), _) => Some(Ok(value)),
            (None, Some(error)) => Some(Err(ProcessWaitError::NeverStarted(Arc::clone(error)))),
            (None, None) => now.detached.then_some(Err(ProcessWaitError::Detached)),
        };
        let seen = self.status.wait_for(seen).await;
        seen.unwrap_or(Err(ProcessWaitError::WatcherGone))
    }
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandle")
            .field("marker", &self.inner.marker)
            .field("containment", &self.containment())
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}
