//! Errors when a session is opened, read or written.

use allstop_core::SessionId;
use allstop_core::process::ProcessIdentity;
use allstop_core::turn::IllegalRecord;

use super::codec::RecordDecodeError;
use crate::{LogError, LogErrorKind, Version};

/// Reason why a session could not be opened or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session does not exist.
    #[error("session `{0}` not found")]
    NotFound(SessionId),
    /// A session with this id already exists.
    #[error("the session `{0}` already exists")]
    Exists(SessionId),
    /// Another process has the session open.
    #[error("the session `{id}` is in use{}", .owner.as_ref().map(|o| format!(" by process {}", o.pid)).unwrap_or_default())]
    InUse {
        /// Id of the session.
        id: SessionId,
        /// The owner, if known.
        owner: Option<ProcessIdentity>,
    },
    /// Another writer has appended, so this writer must not write any more.
    #[error("another writer has appended to the session: it is at version {actual}")]
    Fenced {
        /// Present version of the stream.
        actual: Version,
    },
    /// It is still unknown whether the append was written. The next append first determines the result of this append.
    #[error("it is unknown whether the records of the session were written")]
    Indeterminate,
    /// The records are not allowed in this state. Nothing was written.
    #[error("the record is not allowed at this point of the session")]
    Illegal(#[from] IllegalRecord),
    /// A stored record cannot be read.
    #[error("record {version} of the session `{id}` is damaged or newer")]
    Unreadable {
        /// Id of the session.
        id: SessionId,
        /// Number of the record.
        version: Version,
        /// The cause.
        #[source]
        source: RecordDecodeError,
    },
    /// A stored record is not allowed after the records before it.
    #[error("record {version} of the session `{id}` contradicts the records before it")]
    Inconsistent {
        /// Id of the session.
        id: SessionId,
        /// Number of the record.
        version: Version,
        /// The cause.
        #[source]
        source: IllegalRecord,
    },
    /// Records of the session are missing or damaged in the store. Other sessions may be readable.
    #[error(transparent)]
    Damaged(LogError),
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(LogError),
}

impl From<LogError> for SessionError {
    fn from(error: LogError) -> Self {
        match error.kind() {
            LogErrorKind::DamagedStream => Self::Damaged(error),
            _ => Self::Log(error),
        }
    }
}
