//! What every store promises.

use std::fmt;

use crate::process::{is_seen_alive, this_process};
use crate::{
    AppendError, AppendId, LockAttempt, LogError, LogFuture, RecordBytes, StreamLock, StreamName,
    Version,
};
use allstop_core::process::ProcessIdentity;

/// A log of streams.
///
/// What a caller may assume of every store:
/// 1. The records of a stream are numbered 1, 2, 3 … without a gap, and a record once read never changes.
/// 2. An append is all or nothing, and an `Ok` is durable to the store's stated level.
/// 3. Of two appends that expect the same version one succeeds and the other gets [`AppendError::Conflict`].
/// 4. An append repeated with its id, expected version and records returns what the first one returned, however many
///    others came in between, and writes nothing.
/// 5. A read that starts after an append was answered sees it.
///
/// **Cancel safety**, for all methods: dropping the future of an append, a deletion or a lock does not take it back.
/// It happens whole or not at all, and only repeating an append with its id tells which. Reads leave nothing behind.
pub trait Log: Send + Sync + fmt::Debug {
    /// Appends records if the stream's version is `expected`, and returns its new version.
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>>;

    /// Reads at most `limit` records from number `from` (1 is the first). Fewer means that there are no more; a store
    /// may also answer with fewer to bound its memory, but never with none while there is one.
    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// Reads like [`Log::read`], but waits until there is at least one record. Another writer of this store object is
    /// heard at once, one in another process within [`TAIL_POLL_MS`].
    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>>;

    /// The streams whose name starts with `prefix` and that have a record, by name, with their versions.
    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>>;

    /// Takes the stream's lock if it is free. A lock is advice among those who ask for it: it says who may run
    /// recovery and who owns a session, while `expected` alone keeps two writers apart.
    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>>;

    /// Who holds the stream's lock, without taking it: `None` when it is free.
    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>>;

    /// True if another process than this one, which a record names as the owner of its stream, is seen to run. Whoever
    /// has the lock asks it before taking over what that process had begun: a lock is a file, which somebody may have
    /// deleted. Where nobody can tell, as for a process of another machine or container, the lock alone decides.
    fn is_another_alive(&self, owner: &ProcessIdentity) -> LogFuture<Result<bool, LogError>> {
        LogFuture::ready(Ok(owner != this_process() && is_seen_alive(owner)))
    }

    /// Deletes the stream whose lock this is, and gives the lock back. Its next version is 1 again.
    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>>;
}

/// How often a tail looks for what other processes wrote: often enough for a person who watches, and 10 reads a second
/// of an unchanged stream cost nothing that is seen.
pub const TAIL_POLL_MS: u64 = 100;
