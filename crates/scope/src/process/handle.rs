//! The cheap, cloneable way to a running process tree.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{Containment, How, Verified};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::spec::LaunchError;
use super::status::{ExitInfo, Member, ProcessStatus, Unobserved};
use super::status_channel::{Closed, StatusReceiver};

/// How a level of containment reaches its tree, without waiting.
pub(super) trait Lever: Send + Sync {
    /// Sends SIGTERM to every member.
    fn ask(&self);
    /// Sends SIGKILL to every member; the driver repeats it until none is left.
    fn force(&self);
    /// Who is there now, zombies and keepers aside. Real processes are looked at on a thread of their own.
    fn members(&self) -> BoxFuture<'static, Vec<Member>>;
    /// Who was there when it was seen last: looks at nothing.
    fn known(&self) -> Vec<ProcessIdentity>;
}

/// The members as they were seen last, by whoever watches or signals them: known without a look at the system.
#[derive(Debug, Default)]
pub(super) struct KnownMembers(Mutex<Vec<ProcessIdentity>>);

impl KnownMembers {
    pub(super) fn get(&self) -> Vec<ProcessIdentity> {
        self.0.lock().clone()
    }

    pub(super) fn set(&self, members: Vec<ProcessIdentity>) {
        *self.0.lock() = members;
    }

    #[cfg(target_os = "linux")]
    pub(super) fn set_stats(&self, members: &[super::procfs::Stat]) {
        let living = members.iter().filter(|member| !member.is_dead());
        let living = living.map(|member| super::identity::identity(member.pid, member.start_ticks));
        self.set(living.collect());
    }
}

/// A request that the driver carries out.
#[derive(Debug)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a keeper can let go")
)]
pub(super) struct DetachRequest {
    pub(super) output_file: PathBuf,
    pub(super) reply: oneshot::Sender<Result<(), DetachError>>,
}

/// A tree could not be let go; it is contained as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// Only a keeper can outlive its owner.
    #[error("only a process with a keeper can be detached")]
    NeedsKeeper,
    /// The file for its further output could not be opened.
    #[error("cannot write further output to {}", output_file.display())]
    OutputFile {
        /// Where to.
        output_file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It had ended, or nobody drives it any more.
    #[error("the process is not running")]
    NotRunning,
}

pub(super) struct Shared {
    pub(super) marker: Arc<str>,
    pub(super) containment: Containment,
    pub(super) keeper: Option<ProcessIdentity>,
    pub(super) lever: Box<dyn Lever>,
    /// Wakes the driver when force was asked for.
    pub(super) forced: Notify,
    strongest: AtomicU8,
    first_signal: OnceLock<Instant>,
    detach_tx: mpsc::Sender<DetachRequest>,
}

/// A running process tree: signal it, wait for it, look at it.
///
/// Clones are the same tree. Dropping the handle stops nothing; dropping the [`ProcessDriver`](super::ProcessDriver)
/// does.
#[derive(Clone)]
#[must_use = "a handle is the only way to stop the process"]
pub struct ProcessHandle {
    shared: Arc<Shared>,
    status: StatusReceiver,
}

/// The requests of a handle, for its driver. One place: whoever detaches waits for the answer.
pub(super) fn detach_channel() -> (mpsc::Sender<DetachRequest>, mpsc::Receiver<DetachRequest>) {
    mpsc::channel(1)
}

impl Shared {
    pub(super) fn new(
        marker: Arc<str>,
        containment: Containment,
        keeper: Option<ProcessIdentity>,
        lever: Box<dyn Lever>,
        detach_tx: mpsc::Sender<DetachRequest>,
    ) -> Arc<Self> {
        let (forced, strongest, first_signal) = (Notify::new(), AtomicU8::new(0), OnceLock::new());
        Arc::new(Self {
            marker,
            containment,
            keeper,
            lever,
            forced,
            strongest,
            first_signal,
            detach_tx,
        })
    }

    fn note_signal(&self, strength: u8) {
        self.first_signal.get_or_init(Instant::now);
        self.strongest.fetch_max(strength, Ordering::AcqRel);
    }
}

impl ProcessHandle {
    pub(super) fn new(shared: Arc<Shared>, status: StatusReceiver) -> Self {
        Self { shared, status }
    }

    /// The main process; `None` while its keeper has not yet started it.
    pub fn identity(&self) -> Option<ProcessIdentity> {
        self.status.borrow().main.clone()
    }

    /// The keeper, where there is one.
    pub fn keeper_identity(&self) -> Option<&ProcessIdentity> {
        self.shared.keeper.as_ref()
    }

    /// The marker that its processes carry in their environment.
    pub fn marker(&self) -> &Arc<str> {
        &self.shared.marker
    }

    /// The level at which it is contained.
    pub fn containment(&self) -> Containment {
        self.shared.containment
    }

    /// The status, for looking at it at any time.
    pub fn status(&self) -> StatusReceiver {
        self.status.clone()
    }

    /// Sends SIGTERM to every member of the tree. One that starts later does not get it.
    pub fn ask(&self) {
        if self.is_over() {
            return;
        }
        self.shared.note_signal(1);
        self.shared.lever.ask();
    }

    /// Sends SIGKILL to every member of the tree, again and again until none is left.
    pub fn force(&self) {
        if self.is_over() {
            return;
        }
        self.shared.note_signal(2);
        self.shared.lever.force();
        self.shared.forced.notify_one();
    }

    /// The strongest signal that was asked for while the tree was not yet known to be empty.
    pub fn strongest_signal(&self) -> Option<How> {
        match self.shared.strongest.load(Ordering::Acquire) {
            0 => None,
            1 => Some(How::Sigterm),
            _ => Some(How::Sigkill),
        }
    }

    /// From the first signal until it was known that nothing of the tree is left; `None` before that, and for a tree
    /// that ended without one.
    pub fn stopped_after(&self) -> Option<Duration> {
        let empty_at = self.status.borrow().empty_at?;
        let first_signal = self.shared.first_signal.get()?;
        Some(empty_at.saturating_duration_since(*first_signal))
    }

    /// How it is known that nothing of the tree is left, if it is known by now.
    pub fn emptiness(&self) -> Option<Verified> {
        self.status.borrow().empty
    }

    /// Who is there now, looked at on a thread of its own: about a millisecond on a machine with a few hundred processes.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn members(&self) -> Vec<Member> {
        if self.emptiness().is_some() {
            return Vec::new();
        }
        let members = self.shared.lever.members().await;
        // Its keeper may serve another call since.
        if self.emptiness().is_some() {
            return Vec::new();
        }
        members
    }

    /// Who was there when it was seen last: at its start, when its main process had ended, when it was asked or forced.
    /// Looks at nothing, so it can be called anywhere.
    pub fn known_members(&self) -> Vec<ProcessIdentity> {
        if self.emptiness().is_some() {
            return Vec::new();
        }
        self.shared.lever.known()
    }

    /// Waits until the command has started, and says which process it is.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_started(&self) -> Result<ProcessIdentity, Arc<LaunchError>> {
        let started = |now: &ProcessStatus| match (&now.main, &now.failed) {
            (Some(main), _) => Some(Ok(main.clone())),
            (None, failed) => failed.clone().map(Err),
        };
        let seen = self.status.wait_for(started).await;
        seen.unwrap_or_else(|Closed| Err(Arc::new(LaunchError::KeeperLost)))
    }

    /// Waits until the main process has ended. Its descendants may live on.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_exited(&self) -> Result<ExitInfo, Unobserved> {
        self.wait_for(|status| status.exited).await
    }

    /// Waits until nothing of the tree is left, and says how that is known.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn wait_empty(&self) -> Result<Verified, Unobserved> {
        self.wait_for(|status| status.empty).await
    }

    /// Lets the tree outlive this process: from now on its keeper writes its further output to `output_file` (appended,
    /// up to [`DETACHED_OUTPUT_BYTES_MAX`](super::keeper::DETACHED_OUTPUT_BYTES_MAX)), and a closed connection to its
    /// owner no longer ends it. What the [`OutputReader`](super::OutputReader) has not read by then goes to the file.
    ///
    /// Afterwards nobody here watches it: waits answer [`Unobserved::Detached`]. Signal the keeper by its identity:
    /// SIGTERM makes it end its tree (SIGTERM, and SIGKILL after a grace), and then itself.
    ///
    /// # Cancel safety
    /// Once the driver has taken the request it is carried out, whether or not anyone waits for the answer.
    pub async fn detach(&self, output_file: &Path) -> Result<(), DetachError> {
        if self.shared.keeper.is_none() {
            return Err(DetachError::NeedsKeeper);
        }
        let (reply, answer) = oneshot::channel();
        let request = DetachRequest {
            output_file: output_file.to_owned(),
            reply,
        };
        self.shared
            .detach_tx
            .send(request)
            .await
            .map_err(|_| DetachError::NotRunning)?;
        answer.await.unwrap_or(Err(DetachError::NotRunning))
    }

    fn is_over(&self) -> bool {
        let status = self.status.borrow();
        status.empty.is_some() || status.detached
    }

    async fn wait_for<T: Copy>(
        &self,
        read: impl Fn(&ProcessStatus) -> Option<T>,
    ) -> Result<T, Unobserved> {
        let seen = |now: &ProcessStatus| match (read(now), &now.failed) {
            (Some(value), _) => Some(Ok(value)),
            (None, Some(error)) => Some(Err(Unobserved::NeverStarted(Arc::clone(error)))),
            (None, None) => now.detached.then_some(Err(Unobserved::Detached)),
        };
        let seen = self.status.wait_for(seen).await;
        seen.unwrap_or(Err(Unobserved::WatcherGone))
    }
}

impl std::fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessHandle")
            .field("marker", &self.shared.marker)
            .field("containment", &self.shared.containment)
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}
