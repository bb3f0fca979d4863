//! The append-only log of sessions: in memory and on SQLite.
//!
//! The log is the only truth: state is a fold over its records. A [`Log`] holds streams of records that it does not
//! look into; each stream is numbered densely (1, 2, 3 …), each append names the version it expects, and of two
//! writers one gets a conflict. [`MemoryLog`] lives as long as the process, [`SqliteLog`] survives
//! `kill -9` and power loss. [`SessionStream`] puts the records of one
//! conversation on top: it holds the session's lock, folds what is there, ends the turn that a crash left open, and
//! appends.
//!
//! ```
//! # use std::sync::Arc;
//! # use allstop_log::{AppendId, Log, MemoryLog, StreamName, Version};
//! # futures::executor::block_on(async {
//! let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
//! let stream = StreamName::new("session/s1");
//! let version = log.append(&stream, Version(0), AppendId(1), vec!["hello".into()]).await?;
//! assert_eq!(version, Version(1));
//! // The same id again: nothing is written twice.
//! assert_eq!(log.append(&stream, Version(0), AppendId(1), vec!["hello".into()]).await?, version);
//! assert_eq!(log.read(&stream, Version(1), 10).await?, [(Version(1), "hello".into())]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

pub mod conformance;
mod error;
mod future;
mod lock;
mod log;
mod memory;
mod names;
mod process;
pub mod session;
mod sqlite;

pub use error::{AppendError, LogError, LogErrorKind};
pub use future::LogFuture;
pub use lock::{LockAttempt, StreamLock};
pub use log::{Log, TAIL_POLL_MS};
pub use memory::MemoryLog;
pub use names::{AppendId, AppendIds, RecordBytes, StreamName, Version};
pub use session::{
    RecordObserver, SessionError, SessionStream, SessionSummary, list_sessions, read_session,
    read_session_end, remove_session,
};
pub use sqlite::SqliteLog;
