//! Environment of all scopes of one tree: runtimes, limits, clocks and ids. Callers pass the environment in, so that
//! tests can replace its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use allstop_core::{StopId, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::sync::{ContainmentChoice, Handle, RunningRuntimes, TreeRuntime};
use crate::user_code::catch_panic;

/// Default grace: the time between asking work to stop and ending it by force.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(2);

/// Time limit for the last steps of a stop together: the forced ending of work, the creation of the receipt, and the
/// writing of the turn's ending. If a process is still alive after this time, the kernel cannot kill it
/// (uninterruptible sleep), and a longer wait would not help.
pub const FORCE_MAX: Duration = Duration::from_secs(1);

/// Time limit for each of the two rounds of forced ending. The first round is for the processes, and the second round
/// is for the futures that waited for them. Both rounds fit into [`FORCE_MAX`], with time left for the receipt.
pub(crate) const FORCE_ROUND: Duration = Duration::from_millis(350);

/// Like [`FORCE_ROUND`], but used after a second request to stop. A killed process is gone in a few milliseconds. A
/// user who presses Ctrl-C again expects an immediate answer.
pub(crate) const FORCE_ROUND_AT_ONCE: Duration = Duration::from_millis(50);

/// Duration that means "never". It is longer than any process runs, and short enough that no clock overflows.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Adds a duration of any length to an instant. A caller may use `Duration::MAX` for "no limit". A plain addition of
/// `Duration::MAX` would panic.
pub fn instant_after(from: Instant, duration: Duration) -> Instant {
    from.checked_add(duration).unwrap_or_else(|| from + NEVER)
}

/// Options of a tree of scopes.
#[derive(Clone)]
#[non_exhaustive]
pub struct RootOptions {
    /// Runtime for stops, timers and engines.
    pub control: TreeRuntime,
    /// Runtime of the work: tools, hooks and other user code.
    pub work: TreeRuntime,
    /// Grace: the time between asking work to stop and ending it by force.
    pub grace: Duration,
    /// Containment of child processes that choose none themselves. A process group and a marker by default: a process can
    /// escape, and `kill -9` of this program leaves its processes. A keeper closes both gaps; see
    /// [`keeper_main`](allstop_process::keeper_main).
    pub containment: ContainmentChoice,
    /// Wall-clock time, for receipts.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Creates stop ids.
    pub new_stop_id: Arc<dyn Fn() -> StopId + Send + Sync>,
}

impl RootOptions {
    /// Options for a tree that runs its work on the current runtime, and its stops, deadlines and engines on a thread
    /// of the tree. The clocks and ids are real. The containment is the one that changes no process-wide setting.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn current() -> Self {
        Self {
            control: TreeRuntime::OwnThread,
            ..Self::single_runtime()
        }
    }

    /// Like [`RootOptions::current`], but everything runs on the current runtime. Use these options in tests with a
    /// paused clock, because a pause applies to one runtime. Work that blocks its thread then also blocks stops and
    /// deadlines.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn single_runtime() -> Self {
        let current = Handle::current();
        Self {
            control: current.clone().into(),
            work: current.into(),
            ..Self::with_own_threads()
        }
    }

    /// Options for a tree that works in every program, also without a runtime of tokio: stops, deadlines and engines run
    /// on a thread of the tree. The work runs on the current runtime if it has several threads, and otherwise on a second
    /// thread of the tree ([`TreeRuntime::beside_caller`]). So work that blocks its thread delays neither a stop nor the
    /// task that waits for the receipt.
    pub fn for_any_runtime() -> Self {
        Self {
            work: TreeRuntime::beside_caller(),
            ..Self::with_own_threads()
        }
    }

    /// Sets the runtime for stops, timers and engines.
    #[must_use]
    pub fn control(mut self, control: TreeRuntime) -> Self {
        self.control = control;
        self
    }

    /// Sets the runtime of the work.
    #[must_use]
    pub fn work(mut self, work: TreeRuntime) -> Self {
        self.work = work;
        self
    }

    /// Sets the time between asking work to stop and ending it by force.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the containment of child processes that choose none themselves.
    #[must_use]
    pub fn containment(mut self, containment: ContainmentChoice) -> Self {
        self.containment = containment;
        self
    }

    /// Sets the wall-clock time, for receipts.
    #[must_use]
    pub fn now(mut self, now: Arc<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        self.now = now;
        self
    }

    /// Sets the function that creates stop ids.
    #[must_use]
    pub fn new_stop_id(mut self, new_stop_id: Arc<dyn Fn() -> StopId + Send + Sync>) -> Self {
        self.new_stop_id = new_stop_id;
        self
    }

    fn with_own_threads() -> Self {
        Self {
            control: TreeRuntime::OwnThread,
            work: TreeRuntime::OwnThread,
            grace: GRACE_DEFAULT,
            containment: ContainmentChoice::GroupAndMarker,
            now: Arc::new(|| SystemTime::now().into()),
            new_stop_id: stop_ids(),
        }
    }
}

/// Creates stop ids in ascending order, even within a millisecond and after the clock was set back. If two stops have
/// the same time, the id decides which stop is the later one.
fn stop_ids() -> Arc<dyn Fn() -> StopId + Send + Sync> {
    let ids = Mutex::new(ulid::Generator::new());
    Arc::new(move || {
        let mut ids = ids.lock();
        let next = ids
            .generate()
            .unwrap_or_else(ulid::Overflow::commit_overflow_increment);
        StopId::new(next.to_string())
    })
}

impl fmt::Debug for RootOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootOptions")
            .field("grace", &self.grace)
            .field("containment", &self.containment)
            .finish_non_exhaustive()
    }
}

/// Failure to create a tree of scopes: the system provides no thread for it, or no file descriptor for the event loop of
/// a thread.
#[derive(Debug, thiserror::Error)]
#[error("the system provides no thread or file descriptor for a tree of scopes")]
pub struct CreateRootError(#[from] io::Error);

pub(crate) struct ScopeEnv {
    pub(crate) options: RootOptions,
    runtimes: RunningRuntimes,
    seq: AtomicU64,
    threads: AtomicUsize,
}

impl ScopeEnv {
    pub(crate) fn new(options: RootOptions) -> Result<Self, CreateRootError> {
        Ok(Self {
            runtimes: RunningRuntimes::start(&options.control, &options.work)?,
            options,
            seq: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
        })
    }

    /// Runtime for stops, timers and engines.
    pub(crate) fn control(&self) -> &Handle {
        self.runtimes.control()
    }

    /// Runtime of the work.
    pub(crate) fn work(&self) -> &Handle {
        self.runtimes.work()
    }

    /// Wall-clock time. If the caller's clock panics, the time of the system is used.
    pub(crate) fn now(&self) -> Timestamp {
        catch_panic("RootOptions::now", || (self.options.now)())
            .unwrap_or_else(|| SystemTime::now().into())
    }

    /// A new stop id. If the caller's function panics, a random id is used.
    pub(crate) fn new_stop_id(&self) -> StopId {
        catch_panic("RootOptions::new_stop_id", || (self.options.new_stop_id)())
            .unwrap_or_else(|| StopId::new(ulid::Ulid::generate().to_string()))
    }

    /// Returns the next number. Work is numbered in the order of its registration.
    pub(crate) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn thread_started(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn thread_ended(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }
}
