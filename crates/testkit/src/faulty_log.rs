//! A log whose appends fail on demand.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogErrorKind, LogFuture, RecordBytes,
    StreamLock, StreamName, Version,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Fault of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFault {
    /// The store is full: nothing is written, and it says so.
    Refuse,
    /// Nothing is written, and no answer ever comes.
    Stall,
    /// The append is written, and the answer is lost.
    LoseAnswer,
}

/// A log that fails those appends that hold a record of a named type.
#[derive(Debug)]
pub struct FaultyLog {
    inner: Arc<dyn Log>,
    fault: Mutex<Option<(&'static str, LogFault)>>,
    reached: Notify,
}

impl FaultyLog {
    /// A log over this one, without a fault.
    pub fn new(inner: Arc<dyn Log>) -> Self {
        Self {
            inner,
            fault: Mutex::default(),
            reached: Notify::new(),
        }
    }

    /// Fails each append that holds a record of this type (`turn_committed`), until [`FaultyLog::heal`].
    pub fn fail_at(&self, record_type: &'static str, fault: LogFault) {
        *self.fault.lock() = Some((record_type, fault));
    }

    /// Takes the fault out.
    pub fn heal(&self) {
        *self.fault.lock() = None;
    }

    /// Waits for the next append that fails.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    fn fault_of(&self, records: &[RecordBytes]) -> Option<LogFault> {
        let (record_type, fault) = (*self.fault.lock())?;
        let field = format!(r#""type":"{record_type}""#);
        let mut texts = records.iter().map(|bytes| String::from_utf8_lossy(bytes));
        let fault = texts.any(|text| text.contains(&field)).then_some(fault)?;
        self.reached.notify_one();
        Some(fault)
    }
}

impl Log for FaultyLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        match self.fault_of(&records) {
            None => self.inner.append(stream, expected, id, records),
            Some(LogFault::Refuse) => {
                let full = LogError::new(LogErrorKind::Full, "the test's store");
                LogFuture::ready(Err(full.into()))
            }
            Some(LogFault::Stall) => LogFuture::waiting(std::future::pending()),
            Some(LogFault::LoseAnswer) => {
                let append = self.inner.append(stream, expected, id, records);
                LogFuture::waiting(async move {
                    drop(append.await);
                    Err(AppendError::Indeterminate)
                })
            }
        }
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
