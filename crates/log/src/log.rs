//! Contract of every store.

use std::fmt;
use std::path::PathBuf;

use crate::{
    AppendError, AppendId, LockAttempt, LogError, LogFuture, RecordBytes, StreamLock, StreamName,
    Version,
};
use allstop_core::process::ProcessIdentity;
use allstop_process::{is_alive, this_process};

/// A log of streams.
///
/// Guarantees of every store:
/// 1. The records of a stream are numbered 1, 2, 3 … without a gap, and a record once read never changes.
/// 2. An append is all or nothing, and an `Ok` is durable to the store's stated level.
/// 3. If two appends expect the same version, one succeeds and the other gets [`AppendError::Conflict`].
/// 4. An append that is repeated with its id, expected version and records writes nothing and returns the first
///    result, regardless of other appends in between.
/// 5. A read that starts after the answer to an append returns the appended records.
///
/// **Cancel safety**, for all methods: dropping the future of an append, a deletion or a lock does not undo it. It
/// happens completely or not at all; repeating an append with its id returns the result. Dropped reads have no effect.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends records if the stream's version is `expected`, and returns its new version.
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>>;

    /// Reads at most `limit` records, from number `from` on (the first is 1). A store may return fewer records to bound
    /// its memory, if they have at least [`READ_BYTES_MIN`] bytes together. Otherwise fewer records mean that the
    /// stream had no more records at the time of the read. So a reader reaches the end of a stream even while another
    /// process writes.
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// Reads like [`Log::read`], but waits until the stream has at least one record to return. Appends through this
    /// store object end the wait at once, appends of another process within [`TAIL_POLL_MS`].
    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// Lists the streams with records whose name starts with `prefix`, sorted by name, with their versions.
    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>>;

    /// Takes the stream's lock if it is free. The lock is advisory: it decides who may run recovery and who owns a
    /// session, while only `expected` keeps two writers apart.
    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>>;

    /// Owner of the stream's lock, without taking the lock; `None` if it is free.
    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>>;

    /// True if `owner`, which a record names as the owner of its stream, is another process than this one and is known
    /// to run. The holder of a lock calls this method before it takes over that process's work, because a lock is a
    /// file that a user may have deleted. False if the state of the process cannot be determined (another machine or
    /// container). False also in a store whose locks end with their holder's presence: then the lock alone decides.
    fn is_other_process_running(
        &self,
        owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        LogFuture::ready(Ok(is_another_process_alive(owner)))
    }

    /// Deletes the locked stream and releases the lock. The next record of the stream has number 1 again.
    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>>;

    /// Paths on this machine that hold the records; some may be missing. They hold every session, so protect them from
    /// code that may write files. Empty by default.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Accepts no more requests, waits until the queued ones are done, and releases the locks. A blocked disk blocks
    /// this method: to exit in time, combine it with a timeout. The default implementation does nothing. Dropping the
    /// future does not stop the closing.
    fn close(&self) -> LogFuture<()> {
        LogFuture::ready(())
    }
}

/// True if an owner other than this process is known to run.
///
/// False for a process of another boot, machine or pid namespace, because this process cannot see it. Without a boot
/// id, on a system without `/proc`, the pid may have passed to another process; on such a system the lock itself
/// distinguishes owners.
pub(crate) fn is_another_process_alive(owner: &ProcessIdentity) -> bool {
    owner != this_process() && !owner.boot_id.is_empty() && is_alive(owner)
}

/// Size in bytes that a read must have before a store may cut it short.
pub const READ_BYTES_MIN: usize = 4 << 20;

/// Interval at which a tail checks for records of other processes, in milliseconds: short enough for a watching person,
/// while 10 reads per second of an unchanged stream have no noticeable cost.
pub const TAIL_POLL_MS: u64 = 100;
