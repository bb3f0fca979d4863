//! Services that the managers of a cluster share in addition to the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::LogError;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Future that a method of the link returns.
pub type LinkFuture<T> = BoxFuture<'static, T>;

/// Work queue of a cluster: the wake-ups. A wake-up is a stored hint that a task may need a worker.
///
/// [`wake_up_conformance!`](crate::wake_up_conformance!) tests an implementation.
///
/// **Cancel safety**, for all methods: if the future is dropped, the operation may nevertheless have taken effect. A
/// wake-up that a dropped call has taken is delivered again.
pub trait WakeUpQueue: Send + Sync + fmt::Debug {
    /// Stores a wake-up. The queue may deliver the wake-up several times, and in any order, until a worker removes it.
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>>;

    /// Returns the next wake-up that no worker holds. Waits until such a wake-up exists.
    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>>;

    /// Returns a wake-up that is due and that no worker holds. `None` if no such wake-up exists, or if another worker
    /// waits in [`next_wake_up`](Self::next_wake_up).
    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>>;
}

/// Services that the managers of a cluster share in addition to the log: a work queue, entries and questions.
///
/// An entry is a value under a key. A question goes to one worker, which answers it.
///
/// **Cancel safety**, for all methods: if the future is dropped, the operation may nevertheless have taken effect.
pub trait ClusterLink: WakeUpQueue {
    /// Returns the value of a key. The answer may be older than a recent put.
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>>;

    /// Returns all entries whose key starts with `prefix`. The prefix ends with a slash. The answer may be older than a
    /// recent put.
    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>>;

    /// Sets the value of a key if the key has the revision `expected`, and returns the new revision. `Some(0)` means
    /// that the key must have no value. `None` accepts any revision. Each revision of a key is greater than the
    /// previous one. With `ttl`, the entry expires after this time.
    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>>;

    /// Removes the entry of a key if it has this revision. An entry with another revision stays. Removing an entry that
    /// does not exist succeeds.
    fn remove(&self, key: &str, revision: u64) -> LinkFuture<Result<(), LogError>>;

    /// Sends a question to a worker. `None` if no answer arrives within `max`.
    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>>;

    /// Returns the questions for a worker that arrive from now on.
    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>>;
}

/// A delivered wake-up. The queue delivers the wake-up again some seconds after the last [`hold`](Self::hold). After
/// [`release_after`](Self::release_after), the queue delivers the wake-up again when the pause has passed.
pub trait HeldWakeUp: Send + Sync {
    /// The stored bytes of the wake-up.
    fn payload(&self) -> &[u8];

    /// Number of deliveries of this wake-up, including the present one.
    fn deliveries(&self) -> u64;

    /// Interval in which the worker must call [`hold`](Self::hold), so that no other worker gets the wake-up.
    fn hold_every(&self) -> Duration;

    /// Keeps the wake-up for this worker.
    fn hold(&self) -> LinkFuture<Result<(), LogError>>;

    /// Makes the wake-up available to all workers after this time.
    fn release_after(&self, pause: Duration) -> LinkFuture<Result<(), LogError>>;

    /// Removes the wake-up. The queue does not deliver it again.
    fn remove(&self) -> LinkFuture<Result<(), LogError>>;
}

/// Entry of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEntry {
    /// The key.
    pub key: Arc<str>,
    /// Revision of the entry: each change of the key has a greater number.
    pub revision: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// Reason why a put failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PutError {
    /// The key has another revision.
    #[error("the entry has changed")]
    Conflict,
    /// The value may be stored or not.
    #[error("the outcome is unknown")]
    Unknown(#[source] LogError),
    /// The value is not stored.
    #[error(transparent)]
    Failed(#[from] LogError),
}

/// A question with a callback for its answer.
pub struct AskedQuestion {
    /// The question.
    pub question: Vec<u8>,
    /// Sends the answer. The process that asked may have ended in the meantime.
    pub answer: Box<dyn FnOnce(Vec<u8>) -> LinkFuture<()> + Send + Sync>,
}

impl fmt::Debug for AskedQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskedQuestion").finish_non_exhaustive()
    }
}
