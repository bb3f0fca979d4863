//! One conversation in a log: the records, the lock, and the recovery.

mod append;
mod backward_search;
mod codec;
mod committed_answer;
mod error;
mod fold;
mod fork;
mod list;
mod running_owner;
mod writer;

pub use codec::{RecordDecodeError, decode, encode};
pub use committed_answer::{LoggedAnswer, committed_answer};
pub use error::SessionError;
pub use fold::visit_records;
pub use fork::fork_session;
pub use list::{
    ListedSession, SessionRemoval, SessionSummary, begin_removal, list_sessions, newest_sessions,
    read_session, read_session_end, remove_session,
};
pub use writer::{RecordObserver, SessionWriter};

use allstop_core::SessionId;

use crate::StreamName;

/// Prefix of the stream names of sessions.
pub const STREAM_PREFIX: &str = "session/";

/// Name of a session's stream.
pub fn stream_of(id: &SessionId) -> StreamName {
    StreamName::new(format!("{STREAM_PREFIX}{id}"))
}

/// Id of the session that belongs to this stream; `None` if the stream belongs to no session.
pub fn session_of(stream: &StreamName) -> Option<SessionId> {
    stream
        .as_str()
        .strip_prefix(STREAM_PREFIX)
        .map(SessionId::from)
}
