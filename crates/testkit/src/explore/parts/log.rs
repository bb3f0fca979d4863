//! A log with points: before an append, when it is durable and not yet answered, and after the answer.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, StreamLock,
    StreamName, Version,
};

use super::{INSIDE, Watch};
use crate::explore::point::Moment;

#[derive(Debug)]
pub(crate) struct WatchedLog {
    pub(crate) inner: Arc<dyn Log>,
    pub(crate) watch: Watch,
}

impl Log for WatchedLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let of: Arc<str> = names(&records).into();
        let Watch { points, world } = self.watch.clone();
        let (inner, stream) = (Arc::clone(&self.inner), stream.clone());
        points.reach(Moment::Before, "log_append", Arc::clone(&of));
        LogFuture::waiting(async move {
            // Dropped here it never happens, dropped below it has: a log promises only that it is one of the two.
            tokio::time::sleep(INSIDE).await;
            let answer = inner.append(&stream, expected, id, records).await;
            if let Ok(version) = &answer {
                world.note_durable(version.0);
            }
            points.reach(Moment::Inside, "log_append", Arc::clone(&of));
            tokio::time::sleep(INSIDE).await;
            points.reach(Moment::After, "log_append", of);
            answer
        })
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.inner.read(stream, from, limit)
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.inner.tail(stream, from, limit)
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        self.inner.list(prefix)
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        self.inner.try_lock(stream)
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        self.inner.lock_owner(stream)
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        self.inner.delete(lock)
    }
}

/// The types of the records. Each names its own near its beginning; reading all of it takes longer than the run.
fn names(records: &[RecordBytes]) -> String {
    let names: Vec<&str> = records
        .iter()
        .map(|bytes| {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let (_, rest) = text.split_once(r#""type":""#).unwrap_or_default();
            rest.split('"').next().unwrap_or_default()
        })
        .collect();
    names.join("+")
}
