//! The append-only log of sessions: in memory and on SQLite.
//!
//! The log is the only truth: state is a fold over its records. Records have a dense number per stream (1, 2, 3 …).

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// The name of a stream: `session/01J…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamName(pub Arc<str>);

/// The number of the last record of a stream; 0 is the empty stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

/// Names one append, so that repeating it after a lost answer returns the first version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AppendId(pub Arc<str>);

/// One record: bytes that the log does not look into.
pub type RecordBytes = bytes::Bytes;

/// A log of streams.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends records if the stream's version is `expected`. An `Ok` is durable, to the store's stated level.
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> BoxFuture<'static, Result<Version, AppendError>>;

    /// Reads at most `limit` records from number `from` (1 is the first).
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> BoxFuture<'static, Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// The streams whose name starts with `prefix`, in order, with their versions.
    fn list(&self, prefix: &str) -> BoxFuture<'static, Result<Vec<(StreamName, Version)>, LogError>>;
}

/// Why an append did not happen, or is not known to have.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer was first.
    #[error("the stream is at version {}, not at the expected one", actual.0)]
    Conflict {
        /// Where the stream is.
        actual: Version,
    },
    /// The answer was lost: repeat it with its id.
    #[error("it is not known whether the append happened")]
    Indeterminate,
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why the store failed.
#[derive(Debug, thiserror::Error)]
#[error("placeholder")]
pub struct LogError;
