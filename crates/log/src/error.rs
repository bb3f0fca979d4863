//! Errors of a store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Version;

/// Reason why an append failed or has an unknown outcome.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Another writer appended before.
    #[error("the stream is at version {actual}, not at the expected one")]
    Conflict {
        /// Present version of the stream.
        actual: Version,
    },
    /// The outcome is unknown: repeat the append with its id.
    #[error("it is not known whether the append happened")]
    Indeterminate,
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Error of a store. Its text is one line that names the place; [`LogError::hint`] suggests a remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind}: {place}")]
pub struct LogError {
    kind: LogErrorKind,
    place: Arc<str>,
    #[source]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Kind of a store's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// The store or its folder does not exist.
    NotFound,
    /// Another process kept the store locked for too long. Retry later.
    Busy,
    /// The store, its folder or the file system is read-only.
    ReadOnly,
    /// The device or a quota is full.
    Full,
    /// The file is not a store, or is damaged.
    Corrupt,
    /// A file of the store was moved, removed or replaced while the store was open.
    Replaced,
    /// A newer version of Allstop wrote the store.
    NewerVersion,
    /// The store was closed, or its thread has ended.
    Closed,
    /// Any other error of the system.
    Io,
}

impl fmt::Display for LogErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "there is no such store or folder",
            Self::Busy => "another process keeps the store busy",
            Self::ReadOnly => "the store cannot be written",
            Self::Full => "no room is left for the store",
            Self::Corrupt => "the file is no Allstop store, or is damaged",
            Self::Replaced => {
                "a file of the store was moved, removed or replaced while it was open"
            }
            Self::NewerVersion => "the store was written by a newer version of Allstop",
            Self::Closed => "the store is closed",
            Self::Io => "the store failed",
        })
    }
}

impl LogError {
    /// An error of this kind at this place, usually a path.
    pub fn new(kind: LogErrorKind, place: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            place: place.into(),
            source: None,
        }
    }

    /// Returns the error with its source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> LogErrorKind {
        self.kind
    }

    /// A remedy for the user, in one line.
    pub fn hint(&self) -> Option<&'static str> {
        match self.kind {
            LogErrorKind::NotFound => Some("make the folder first, or name another store"),
            LogErrorKind::Busy => Some("try again, or see which process holds the file"),
            LogErrorKind::ReadOnly => Some(
                "give yourself write permission on the file and its folder, or name another store",
            ),
            LogErrorKind::Full => {
                Some("free some room on the device; what was acknowledged is still there")
            }
            LogErrorKind::Corrupt => {
                Some("name another store, or move this file away; it was left as it is")
            }
            LogErrorKind::Replaced => Some(
                "put the store back with the files beside it, or name another store; nothing more was written",
            ),
            LogErrorKind::NewerVersion => Some("use the newer version, or name another store"),
            LogErrorKind::Closed => Some("open the store again"),
            LogErrorKind::Io => Some("see what is wrong with the device, or name another store"),
        }
    }
}
