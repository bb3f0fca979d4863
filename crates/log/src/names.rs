//! How streams, positions and appends are named.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a stream: `session/01J…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamName(Arc<str>);

impl StreamName {
    /// Takes the name as it is.
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

/// The number of a record in its stream, and so also of the last one; 0 is the empty stream.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The version that follows.
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

/// Names one append, so that repeating it after a lost answer returns the first version. It is stored with the records
/// that it wrote, so a store remembers nothing else and forgets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendId(pub u128);

/// The append ids of one writer: a random half that no other writer shares, and a count.
#[derive(Debug)]
pub struct AppendIds {
    next: u128,
}

impl AppendIds {
    /// The ids of a new writer.
    pub fn new() -> Self {
        // The random part of a ULID has 80 bits; the 64 lowest of them go into the upper half.
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

/// One record: bytes that the log does not look into.
pub type RecordBytes = bytes::Bytes;
