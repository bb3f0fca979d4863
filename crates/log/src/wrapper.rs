//! Logs that change some methods of another log.

use std::fmt;
use std::path::PathBuf;

use allstop_core::process::ProcessIdentity;

use crate::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogFuture, RecordBytes, StreamLock,
    StreamName, Version,
};

/// A log that passes its calls to an inner log. An implementation states the inner log and the methods that it changes;
/// each wrapper is a [`Log`]. The rules and the cancel safety of [`Log`] also apply to a wrapper.
///
/// ```
/// use allstop_log::{LogFuture, LogWrapper, Log, LogError, MemoryLog, StreamName, Version};
///
/// #[derive(Debug, Default)]
/// struct WithoutLists(MemoryLog);
///
/// impl LogWrapper for WithoutLists {
///     fn inner(&self) -> &dyn Log {
///         &self.0
///     }
///
///     fn list(&self, _prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
///         LogFuture::ready(Ok(Vec::new()))
///     }
/// }
///
/// let log: Box<dyn Log> = Box::new(WithoutLists::default());
/// # let _ = log;
/// ```
pub trait LogWrapper: Send + Sync + fmt::Debug {
    /// The log that gets the calls.
    fn inner(&self) -> &dyn Log;

    /// Changes [`Log::append`].
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        self.inner().append(stream, expected, id, records)
    }

    /// Changes [`Log::read`].
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.inner().read(stream, from, limit)
    }

    /// Changes [`Log::tail`].
    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.inner().tail(stream, from, limit)
    }

    /// Changes [`Log::list`].
    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        self.inner().list(prefix)
    }

    /// Changes [`Log::list_newest_first`].
    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        self.inner().list_newest_first(prefix)
    }

    /// Changes [`Log::try_lock`].
    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        self.inner().try_lock(stream)
    }

    /// Changes [`Log::lock_owner`].
    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        self.inner().lock_owner(stream)
    }

    /// Changes [`Log::is_other_process_running`].
    fn is_other_process_running(
        &self,
        owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        self.inner().is_other_process_running(owner)
    }

    /// Changes [`Log::delete`].
    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        self.inner().delete(lock)
    }

    /// Changes [`Log::delete_unchanged`].
    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        self.inner().delete_unchanged(streams)
    }

    /// Changes [`Log::files`].
    fn files(&self) -> Vec<PathBuf> {
        self.inner().files()
    }

    /// Changes [`Log::write_back`].
    fn write_back(&self) -> LogFuture<Result<(), LogError>> {
        self.inner().write_back()
    }

    /// Changes [`Log::close`].
    fn close(&self) -> LogFuture<()> {
        self.inner().close()
    }
}

impl<W: LogWrapper> Log for W {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        LogWrapper::append(self, stream, expected, id, records)
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        LogWrapper::read(self, stream, from, limit)
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        LogWrapper::tail(self, stream, from, limit)
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        LogWrapper::list(self, prefix)
    }

    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        LogWrapper::list_newest_first(self, prefix)
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        LogWrapper::try_lock(self, stream)
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        LogWrapper::lock_owner(self, stream)
    }

    fn is_other_process_running(
        &self,
        owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        LogWrapper::is_other_process_running(self, owner)
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        LogWrapper::delete(self, lock)
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        LogWrapper::delete_unchanged(self, streams)
    }

    fn files(&self) -> Vec<PathBuf> {
        LogWrapper::files(self)
    }

    fn write_back(&self) -> LogFuture<Result<(), LogError>> {
        LogWrapper::write_back(self)
    }

    fn close(&self) -> LogFuture<()> {
        LogWrapper::close(self)
    }
}
