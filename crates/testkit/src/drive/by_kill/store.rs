//! The store of a process that is killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, SqliteLog,
    StreamLock, StreamName, Version,
};
use futures::executor::block_on;

use super::STORE_VARIABLE;

/// The folder of the store on which this process is to be killed, if it is one that is.
pub(super) fn from_environment() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "one process tells another where its store is"
    )]
    let folder = std::env::var(STORE_VARIABLE).ok()?;
    Some(folder.into())
}

pub(super) fn open(folder: &Path) -> Result<Arc<SqliteLog>, LogError> {
    Ok(Arc::new(block_on(SqliteLog::open(
        folder.join("sessions.db"),
    ))?))
}

/// A store on disk whose answers are there at once: the thread waits for it. Paused time would else run ahead.
#[derive(Debug)]
pub(super) struct ImmediateLog(pub(super) Arc<SqliteLog>);

impl Log for ImmediateLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        LogFuture::ready(block_on(self.0.append(stream, expected, id, records)))
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        LogFuture::ready(block_on(self.0.read(stream, from, limit)))
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.0.tail(stream, from, limit)
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        LogFuture::ready(block_on(self.0.list(prefix)))
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        LogFuture::ready(block_on(self.0.try_lock(stream)))
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        LogFuture::ready(block_on(self.0.lock_owner(stream)))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        LogFuture::ready(block_on(self.0.delete(lock)))
    }
}
