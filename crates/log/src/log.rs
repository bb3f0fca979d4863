//! Rules that every store follows.

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
/// 1. The records of a stream are numbered 1, 2, 3 … without a gap. A record that was read once never changes.
/// 2. An append is written completely or not at all. `Ok` means that the append is as durable as the store promises.
/// 3. If two appends expect the same version, one succeeds and the other gets [`AppendError::Conflict`].
/// 4. If an append is repeated with the same id, expected version and records, the store writes nothing and returns the
///    first result. Other appends in between do not change this. A deletion of the stream also deletes its append ids.
/// 5. A read that starts after the answer to an append returns the records of this append.
///
/// **Cancel safety**, for all methods: if the future of an append, a deletion or a lock is dropped, the operation is
/// not undone. The operation happens completely or not at all. If an append is repeated with its id, the result of the
/// append is returned. Dropped reads have no effect.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends records if the version of the stream is `expected`. Returns the new version of the stream.
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>>;

    /// Reads at most `limit` records, beginning with number `from` (the first record has number 1). A store may limit
    /// its memory and return fewer records, if these have at least [`READ_BYTES_MIN`] bytes together. In all other
    /// cases, fewer records mean that the stream had no more records at the time of the read. So a reader reaches the
    /// end of a stream even while another process writes.
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// Reads like [`Log::read`], but waits until the stream has at least one record to return. If the append comes
    /// through this store object, the wait ends immediately. If another process appends, the wait ends within
    /// [`TAIL_POLL_MS`].
    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// Lists the streams that have records and whose names start with `prefix`. The list is sorted by name and contains
    /// the version of each stream.
    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>>;

    /// Lists like [`Log::list`], but sorted by the last append to each stream, the newest first. The store counts its
    /// appends, so a change of the clock does not change the order.
    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>>;

    /// Takes the stream's lock if the lock is free. The lock is advisory: it decides who may run recovery and who owns
    /// a session. The lock does not prevent another writer from appending; only the parameter `expected` of each append
    /// does that.
    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>>;

    /// Returns the owner of the stream's lock, and does not take the lock; `None` if the lock is free.
    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>>;

    /// True if `owner` is a process that is known to run and is not this process. A record names `owner` as the owner
    /// of the record's stream. The holder of a lock calls this method before the holder takes over the work of that
    /// process. The lock alone is not enough, because a user may have deleted the file of an earlier lock. False if the
    /// state of the process cannot be determined (another machine or container). Also false in a store whose locks end
    /// when their holder is gone. In such a store, the lock alone decides.
    fn is_other_process_running(
        &self,
        owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        LogFuture::ready(Ok(is_another_process_alive(owner)))
    }

    /// Deletes the locked stream and releases the lock. The next record of the stream gets number 1 again.
    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>>;

    /// Deletes each of these streams that has the given version, and needs no lock. A stream with another version stays:
    /// another writer has appended to it. Returns the streams that are gone, in the given order. A stream that does not
    /// exist has version 0. If the call fails or is interrupted, each stream is complete or gone. A store in one file
    /// deletes all streams of a call, or none.
    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>>;

    /// Paths on this machine that contain the records. Some of the paths may not exist. The files contain every
    /// session, so protect them from code that may write files. Empty by default.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Writes all records into the main file of the store, so that a copy of this file is complete. Records that another
    /// process writes meanwhile, or that another process is reading, may stay in another file. A store without such files
    /// does nothing.
    fn write_back(&self) -> LogFuture<Result<(), LogError>> {
        LogFuture::ready(Ok(()))
    }

    /// Accepts no more requests, waits until the queued requests are done, and releases the locks. If the disk is
    /// blocked, this method also blocks. To exit in time, combine this method with a timeout. The default
    /// implementation does nothing. If the future is dropped, the store is still closed.
    fn close(&self) -> LogFuture<()> {
        LogFuture::ready(())
    }
}

/// True if an owner other than this process is known to run.
///
/// False for a process of another boot, machine or pid namespace, because this process cannot see such a process. On a
/// system without `/proc` there is no boot id, and the pid may now belong to another process. On such a system, the
/// lock itself distinguishes the owners.
pub(crate) fn is_another_process_alive(owner: &ProcessIdentity) -> bool {
    owner != this_process() && !owner.boot_id.is_empty() && is_alive(owner)
}

/// Minimum size of a read in bytes. Only above this size may a store return fewer records than requested.
pub const READ_BYTES_MIN: usize = 4 << 20;

/// Interval at which a tail checks for records of other processes, in milliseconds. The interval is short enough for a
/// person who watches, and the cost is low: 10 reads per second of an unchanged stream are not noticeable.
pub const TAIL_POLL_MS: u64 = 100;
