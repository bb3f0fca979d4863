//! Services that the managers of a cluster share in addition to the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::LogError;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Answer of the link.
pub type LinkFuture<T> = BoxFuture<'static, T>;

/// Services that the managers of a cluster share in addition to the log: entries, wake-ups and questions.
///
/// **Cancel safety**, for all methods: a dropped future may have taken effect.
pub trait ClusterLink: Send + Sync + fmt::Debug {
    /// Returns the present value of a key. The value may be older than a recent put.
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>>;

    /// Returns all entries whose key starts with `prefix`, which ends with a slash. The entries may be older than a
    /// recent put.
    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>>;

    /// Sets the value of a key if its present revision is `expected`, and returns the new revision. `Some(0)` expects
    /// no value; `None` accepts any revision. Revisions grow. With `ttl` the entry expires after that time.
    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>>;

    /// Stores a wake-up. Until a worker takes it away, it may be delivered several times and in any order.
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>>;

    /// Returns the next free wake-up, and waits until there is one.
    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>>;

    /// Returns a wake-up that is due and that no worker takes. `None` if there is none, or if a worker waits for the
    /// next one.
    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>>;

    /// Asks a worker. `None` if no answer comes within `max`.
    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>>;

    /// Streams the questions for a worker, from now on.
    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>>;
}

/// A delivered wake-up. It is delivered again some seconds after the last [`hold`](Self::hold), or after the pause of
/// [`release_after`](Self::release_after).
pub trait HeldWakeUp: Send + Sync {
    /// The stored bytes of the wake-up.
    fn payload(&self) -> &[u8];

    /// Number of deliveries so far, including this one.
    fn deliveries(&self) -> u64;

    /// Interval in which [`hold`](Self::hold) must be called to keep the wake-up from other workers.
    fn hold_every(&self) -> Duration;

    /// Keeps the wake-up from other workers.
    fn hold(&self) -> LinkFuture<Result<(), LogError>>;

    /// Makes the wake-up available to all workers after this time.
    fn release_after(&self, pause: Duration) -> LinkFuture<Result<(), LogError>>;

    /// Removes the wake-up for good.
    fn remove(&self) -> LinkFuture<Result<(), LogError>>;
}

/// Value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEntry {
    /// The key.
    pub key: Arc<str>,
    /// Number of the last change of the key.
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
    /// The value may be stored.
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
    /// Sends the answer. The process that asked may have ended.
    pub answer: Box<dyn FnOnce(Vec<u8>) -> LinkFuture<()> + Send + Sync>,
}

impl fmt::Debug for AskedQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskedQuestion").finish_non_exhaustive()
    }
}
