//! Errors of a store.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::Version;

/// Reason why an append failed or has an unknown outcome.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Another writer has appended before this append.
    #[error("the stream is at version {actual}, not at the expected version")]
    Conflict {
        /// Present version of the stream.
        actual: Version,
    },
    /// The outcome is unknown: repeat the append with its id.
    #[error("the outcome of the append is unknown")]
    Indeterminate,
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Error of a store. The text of the error is one line that names the place. [`LogError::hint`] suggests a remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{kind}: {place}")]
pub struct LogError {
    kind: LogErrorKind,
    place: Arc<str>,
    /// Path of the store in a file.
    store: Option<Arc<Path>>,
    #[source]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Kind of a store's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogErrorKind {
    /// The store or its folder does not exist.
    NotFound,
    /// Another process kept the store locked for too long. The caller can try again later.
    Busy,
    /// The store, its folder or the file system is read-only.
    ReadOnly,
    /// The device or a quota is full.
    Full,
    /// The file is not a store, or is damaged.
    Corrupt,
    /// The file of the store is empty or was cut.
    Incomplete,
    /// The write-ahead log is damaged, so the newest records cannot be read.
    DamagedLog,
    /// Records of one stream are missing or damaged. The other streams may be readable.
    DamagedStream,
    /// The store has a second path, through which other processes would not see the same records.
    OtherPath,
    /// A repair of the store was interrupted.
    RepairUnfinished,
    /// A file of the store was moved, removed or replaced while the store was open.
    Replaced,
    /// A newer version of Allstop wrote the store.
    NewerVersion,
    /// A stop ended the operation, which has changed nothing.
    Stopped,
    /// The store was closed, or its thread has ended.
    Closed,
    /// The servers of the store do not answer, or have no leader.
    Unreachable,
    /// Any other error of the system.
    Io,
}

impl fmt::Display for LogErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "the store or its folder does not exist",
            Self::Busy => "another process keeps the store locked",
            Self::ReadOnly => "the store is not writable",
            Self::Full => "no space is left for the store",
            Self::Corrupt => "the file is not an Allstop store, or is damaged",
            Self::Incomplete => "a part of the store is missing",
            Self::DamagedLog => "the newest records of the store are damaged",
            Self::DamagedStream => "records of the store are damaged",
            Self::OtherPath => "the store has a second path",
            Self::RepairUnfinished => "a repair of the store was interrupted",
            Self::Replaced => {
                "a file of the store was moved, removed or replaced while it was open"
            }
            Self::NewerVersion => "the store was written by a newer version of Allstop",
            Self::Stopped => "the operation was stopped",
            Self::Closed => "the store is closed",
            Self::Unreachable => "the servers of the store cannot be reached",
            Self::Io => "the store failed",
        })
    }
}

impl LogError {
    /// An error of this kind at this place. The place is usually a path.
    pub fn new(kind: LogErrorKind, place: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            place: place.into(),
            store: None,
            source: None,
        }
    }

    /// Returns the error with its source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    #[cfg(feature = "sqlite")]
    /// Names the store in a file, for the commands in the hint.
    pub(crate) fn in_store(mut self, path: &Path) -> Self {
        self.store = Some(path.into());
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> LogErrorKind {
        self.kind
    }

    /// A remedy for the user, in one line.
    pub fn hint(&self) -> Option<String> {
        let hint = self.kind.hint();
        let store = self.store.as_ref().map(|path| path.to_string_lossy());
        Some(match store {
            Some(store) if !store.contains(char::is_whitespace) && !store.contains('\'') => {
                hint.replace("{store}", &format!(" --store {store}"))
            }
            Some(store) => {
                let store = store.replace('\'', "'\\''");
                hint.replace("{store}", &format!(" --store '{store}'"))
            }
            None => hint.replace("{store}", ""),
        })
    }
}

impl LogErrorKind {
    /// Text of the hint. `{store}` stands for the flag that names the store.
    fn hint(self) -> &'static str {
        match self {
            Self::NotFound => "create the folder first, or use another store",
            Self::Busy => "try again, or check which process has the file open",
            Self::ReadOnly => {
                "give yourself write permission on the file and its folder, or use another store"
            }
            Self::Full => "free some space on the device; every confirmed record is still there",
            Self::Corrupt => {
                "use another store; if this file was a store, restore a back-up, or run `allstop store repair{store}`, which keeps \
                 the damaged files and continues with the readable records"
            }
            Self::Incomplete | Self::DamagedLog => {
                "restore the store from a back-up, or run `allstop store repair{store}`, which keeps the damaged files and \
                 continues with the readable records"
            }
            Self::DamagedStream => {
                "other sessions may be readable; `allstop store repair{store}` keeps the damaged files and cuts this session \
                 before the damage; `allstop sessions rm ID{store}` removes it"
            }
            Self::OtherPath => {
                "use one path for all processes, and remove hard links to the file; a symbolic link is safe"
            }
            Self::RepairUnfinished => "run `allstop store repair{store}` again",
            Self::Replaced => {
                "restore the store and the files next to it, or use another store; nothing more was written"
            }
            Self::NewerVersion => "use the newer version, or use another store",
            Self::Stopped => "run the command again",
            Self::Closed => "open the store again",
            Self::Unreachable => {
                "check that the servers run and that most of them can reach each other; then try again"
            }
            Self::Io => "check the device, or use another store",
        }
    }
}
