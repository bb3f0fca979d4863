//! Names of streams, versions, and ids of appends.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Name of a stream, such as `session/01J…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamName(Arc<str>);

impl StreamName {
    /// Creates a name from this text, without a check.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of a record in its stream. The version of a stream is the number of the last record, or 0 if the stream is
/// empty.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The next version.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Id of one append. If an append is repeated after a lost answer, the first result is returned. The id is stored with
/// the records of the append, so a store needs no other place for ids and never forgets an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendId(pub u128);

/// Append ids of one writer. The upper half of an id is random and identifies the writer. The lower half is a counter.
#[derive(Debug)]
pub struct AppendIds {
    next: u128,
}

impl AppendIds {
    /// Creates the ids of a new writer.
    pub fn new() -> Self {
        // The random part of a ULID has 80 bits. Its lowest 64 bits become the upper half of the ids.
        Self {
            next: u128::from(ulid::Ulid::generate().random() as u64) << 64,
        }
    }

    /// The next id.
    pub fn next_id(&mut self) -> AppendId {
        self.next += 1;
        AppendId(self.next)
    }
}

impl Default for AppendIds {
    fn default() -> Self {
        Self::new()
    }
}

/// One record: bytes that the log does not interpret.
pub type RecordBytes = bytes::Bytes;
