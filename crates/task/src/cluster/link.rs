//! The services that the managers of a cluster share beside the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::LogError;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Answer of the link.
pub type LinkFuture<T> = BoxFuture<'static, T>;

/// Services that the managers of a cluster share beside the log: entries, wake-ups and questions.
///
/// **Cancel safety**, for all methods: a dropped future may have had its effect.
pub trait ClusterLink: Send + Sync + fmt::Debug {
    /// The present value of a key. It may be older than an entry that was just put.
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>>;

    /// All entries whose key starts with `prefix`, which ends with a slash. They may be older than an entry that was just
    /// put.
    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>>;

    /// Sets the value of a key if its present revision is `expected` (0: it has none; `None`: whatever it is), and returns
    /// the new revision. Revisions grow. With `ttl` the entry goes after that time.
    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>>;

    /// Stores a wake-up. It is delivered until somebody takes it away, several times and in any order.
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>>;

    /// The next wake-up that nobody holds, once there is one.
    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>>;

    /// A wake-up that nobody takes, although it is due: `None` if there is none, or somebody waits for the next one.
    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>>;

    /// Asks a worker. `None`: nobody answered in this time.
    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>>;

    /// The questions for a worker, from now on.
    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>>;
}

/// A wake-up that was delivered. It is delivered again when it is held no longer: some seconds after the last
/// [`hold`](Self::hold), or when [`later`](Self::later) says.
pub trait HeldWakeUp: Send + Sync {
    /// The wake-up as it was stored.
    fn payload(&self) -> &[u8];

    /// Number of its deliveries so far, this one included.
    fn deliveries(&self) -> u64;

    /// Interval in which [`hold`](Self::hold) keeps it from others.
    fn hold_every(&self) -> Duration;

    /// Keeps it from others.
    fn hold(&self) -> LinkFuture<Result<(), LogError>>;

    /// Gives it to anybody after this time.
    fn later(&self, pause: Duration) -> LinkFuture<Result<(), LogError>>;

    /// Takes it away for good.
    fn take_away(&self) -> LinkFuture<Result<(), LogError>>;
}

/// Value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEntry {
    /// The key.
    pub key: Arc<str>,
    /// Number of its last change.
    pub revision: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// Reason why a value was not put.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PutError {
    /// The key has another revision.
    #[error("the entry has changed")]
    Conflict,
    /// It may be there.
    #[error("the outcome is unknown")]
    Unknown(#[source] LogError),
    /// It is not there.
    #[error(transparent)]
    Failed(#[from] LogError),
}

/// A question, and the way back for its answer.
pub struct AskedQuestion {
    /// The question.
    pub question: Vec<u8>,
    /// Sends the answer. The asker may be gone.
    pub answer: Box<dyn FnOnce(Vec<u8>) -> LinkFuture<()> + Send + Sync>,
}

impl fmt::Debug for AskedQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskedQuestion").finish_non_exhaustive()
    }
}
