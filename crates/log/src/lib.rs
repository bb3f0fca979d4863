//! The append-only log of sessions, with one implementation in memory and one on SQLite (feature `sqlite`).
//!
//! Only records are stored. The state of a session is a fold: the result of applying all its records in their order. A
//! [`Log`] contains streams of records and does not interpret the records. The records of a stream are numbered without
//! gaps (1, 2, 3 …). Each append contains the expected version of the stream, so if two writers race, one of them gets
//! a conflict. The records of a [`MemoryLog`] exist as long as the process. The records of a `SqliteLog` survive
//! `kill -9` and power loss. [`SessionWriter`] is the layer for the records of one conversation. The writer holds the
//! session's lock, folds the records of the session, ends a turn that a crash left open, and appends new records.
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

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod exchange;
mod future;
mod lock;
mod log;
mod memory;
mod names;
pub mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stream_writer;
mod wrapper;

pub use error::{AppendError, LogError, LogErrorKind};
pub use exchange::{ExchangeError, ExchangeReport, ExportLines, export, import};
pub use future::LogFuture;
pub use lock::{LockAttempt, StreamLock};
pub use log::{Log, READ_BYTES_MIN, TAIL_POLL_MS};
pub use memory::MemoryLog;
pub use names::{AppendId, AppendIds, RecordBytes, StreamName, Version};
pub use session::{
    ListedSession, LoggedAnswer, RecordObserver, SessionError, SessionRemoval, SessionSummary,
    SessionWriter, begin_removal, committed_answer, fork_session, list_sessions, newest_sessions,
    read_session, read_session_end, remove_session, visit_records,
};
#[cfg(feature = "sqlite")]
pub use sqlite::{
    BackupReport, CompactReport, CutStream, EndOfCut, MaintenanceStop, Progress, RepairReport,
    SqliteLog, StoreCheckReport, StoreMaintenance, StoreProblem, open_for_reading,
};
pub use stream_writer::{StreamWriteError, StreamWriter};
pub use wrapper::LogWrapper;
