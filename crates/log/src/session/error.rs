//! Why a session could not be opened or written.

use allstop_core::SessionId;
use allstop_core::process::ProcessIdentity;
use allstop_core::turn::IllegalRecord;

use super::codec::DecodeError;
use crate::{LogError, Version};

/// Why a session could not be opened or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no such session.
    #[error("there is no session {0}")]
    NotFound(SessionId),
    /// A session of this id is there already.
    #[error("the session {0} is there already")]
    Exists(SessionId),
    /// Somebody else has it open.
    #[error("the session {id} is in use{}", .owner.as_ref().map(|o| format!(" by process {}", o.pid)).unwrap_or_default())]
    InUse {
        /// The session.
        id: SessionId,
        /// Who, where it is known.
        owner: Option<ProcessIdentity>,
    },
    /// Another writer has appended: this one may write no more.
    #[error("another writer has taken the session over: it is at version {actual}")]
    Fenced {
        /// Where the stream is.
        actual: Version,
    },
    /// It stayed unknown whether the records were written. The next append settles it first.
    #[error("it is not known whether the records of the session were written")]
    Indeterminate,
    /// The records do not follow from the state; nothing was written.
    #[error("the record cannot follow")]
    Illegal(#[from] IllegalRecord),
    /// A stored record cannot be read.
    #[error("record {version} of the session {id} is damaged or newer")]
    Unreadable {
        /// The session.
        id: SessionId,
        /// The record.
        version: Version,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// A stored record does not follow from those before it.
    #[error("record {version} of the session {id} does not follow from those before it")]
    Inconsistent {
        /// The session.
        id: SessionId,
        /// The record.
        version: Version,
        /// Why.
        #[source]
        source: IllegalRecord,
    },
    /// The store failed; nothing was written.
    #[error(transparent)]
    Log(#[from] LogError),
}
