//! The log on SQLite. The store passes appends to the writer's thread and reads to the reader's thread.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::classify::io_error;
use super::connection::OpenStore;
use super::files;
use super::lock_folder::{FileLock, FileLockAttempt};
use super::open_stores;
use super::reader::{ReadJob, StoreReader};
use super::stream_notifier::{StreamFollower, StreamNotifier};
use super::thread;
use super::writer::{QueuedAppend, QueuedDeletion, StoreWriter, WriteCommand};
use crate::log::is_another_process_alive;
use crate::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogErrorKind, LogFuture, RecordBytes,
    StreamLock, StreamName, TAIL_POLL_MS, Version,
};

/// Maximum number of appends that wait for the writer's thread: enough for a few transactions. If the queue is full, an
/// append waits before it enters the queue. So a slow disk slows the callers down and does not fill the memory.
const WRITE_QUEUE_LEN_MAX: usize = 1_024;
/// Maximum number of reads that wait for the reader. The reason for the limit is the same as for appends.
const READ_QUEUE_LEN_MAX: usize = 1_024;

/// A log in a file that survives `kill -9` and power loss. Several processes can share the file. Clones share the file
/// too.
///
/// * An acknowledged append is on the disk, because each commit syncs the write-ahead log. One commit writes all
///   waiting appends, so 64 writers together are much faster than one writer.
/// * If another process writes, an append waits for up to five seconds. Then it fails with [`LogErrorKind::Busy`].
/// * Locks are files in `<store>.locks/`.
/// * The last appends are in `<store>-wal` until this file has one megabyte, the store is idle for ten seconds, or the
///   oldest of these appends is a minute old. [`Log::write_back`] writes them into the file of the store at once;
///   [`SqliteLog::close`] does not. So if you copy or move the store, copy or move this file too.
/// * The file has a format version. A file with a newer version is refused.
/// * If a file of the store is moved, removed or replaced, appends and reads fail with [`LogErrorKind::Replaced`]. So
///   the store never confirms a record that the next process could not find.
///
/// **Dropping** the log does not wait. Queued appends are still written while the process runs, and a blocked disk
/// never delays the exit of the process. [`SqliteLog::close`] waits.
#[derive(Clone)]
pub struct SqliteLog {
    path: Arc<Path>,
    /// The path without symbolic links.
    resolved: Arc<Path>,
    writes: mpsc::Sender<WriteCommand>,
    reads: mpsc::Sender<ReadJob>,
    notifier: Arc<StreamNotifier>,
    /// Each of the two threads holds a receiver of this channel until the thread ends.
    writing: watch::Sender<()>,
    reading: watch::Sender<()>,
}

impl SqliteLog {
    /// Opens the store at this path. If the store is missing, creates it. The folder of the store must exist.
    ///
    /// **Cancel safety**: if the future is dropped, an empty store may remain.
    ///
    /// # Errors
    /// Returns a [`LogError`] whose kind names the reason. The folder may be missing, not writable, or on a full disk.
    /// The file may be damaged, newer, or not a store. Another process may keep the store busy.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, LogError> {
        let path = path.as_ref();
        let path: Arc<Path> = std::path::absolute(path)
            .map_err(|error| io_error(path, error))?
            .into();
        let notifier = Arc::new(StreamNotifier::default());
        let (writing, until_written) = watch::channel(());
        let (reading, until_read) = watch::channel(());
        let (writes, commands) = mpsc::channel(WRITE_QUEUE_LEN_MAX);
        let (reads, jobs) = mpsc::channel(READ_QUEUE_LEN_MAX);
        let (store, heard) = (path.clone(), notifier.clone());
        let resolved = start("allstop-log-write", &path, move |opened| {
            let _held = until_written;
            StoreWriter::new(opened, store, heard).run(commands);
        })
        .await?;
        let store = path.clone();
        start("allstop-log-read", &path, move |opened| {
            let _held = until_read;
            StoreReader::new(opened, store).run(jobs);
        })
        .await?;
        Ok(Self {
            path,
            resolved,
            writes,
            reads,
            notifier,
            writing,
            reading,
        })
    }

    /// Path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn closed(&self) -> LogError {
        LogError::new(LogErrorKind::Closed, self.path.display().to_string())
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut StoreReader) -> Result<T, LogError> + Send + 'static,
    ) -> impl Future<Output = Result<T, LogError>> + Send + 'static {
        let (reads, closed) = (self.reads.clone(), self.closed());
        async move {
            let (reply, answer) = oneshot::channel();
            // If the caller no longer waits, the answer is dropped.
            let job: ReadJob = Box::new(move |reader| {
                drop(reply.send(reader.check_files().and_then(|()| job(reader))));
            });
            reads.send(job).await.map_err(|_| closed.clone())?;
            answer.await.unwrap_or(Err(closed))
        }
    }
}

/// Starts a thread that opens the store and then calls `run`. Waits until the store is open. Returns the path of the
/// store without symbolic links.
async fn start(
    name: &str,
    path: &Arc<Path>,
    run: impl FnOnce(OpenStore) + Send + 'static,
) -> Result<Arc<Path>, LogError> {
    let (opened, answer) = oneshot::channel();
    let store = path.clone();
    thread::start(name, move || match open_stores::open(&store) {
        Ok(store) => {
            if opened.send(Ok(store.files.store().into())).is_ok() {
                run(store);
            }
        }
        // The caller that opens the store may no longer wait.
        Err(error) => drop(opened.send(Err(error))),
    })
    .map_err(|error| io_error(path, error))?;
    let place = || path.display().to_string();
    answer
        .await
        .unwrap_or_else(|_| Err(LogError::new(LogErrorKind::Closed, place())))
}

/// Converts a file lock to a stream lock. The reader releases the lock. If the store is closed, the lock is released
/// when the file is dropped.
fn stream_lock(stream: StreamName, file: FileLock, reads: mpsc::Sender<ReadJob>) -> StreamLock {
    let is_first = file.is_first();
    let lock = StreamLock::new(stream, move || {
        // If the job is rejected, the job is dropped, and the lock in it is dropped too.
        drop(reads.try_send(Box::new(move |_: &mut StoreReader| file.release())));
    });
    if is_first { lock.first() } else { lock }
}

impl Log for SqliteLog {
    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let (reply, answer) = oneshot::channel();
        let append = QueuedAppend {
            stream: stream.clone(),
            expected,
            id,
            records,
            reply,
        };
        // If no answer arrives, the writer has ended in the middle of the append.
        match self.writes.try_send(WriteCommand::Append(append)) {
            Ok(()) => LogFuture::waiting(async {
                answer.await.unwrap_or(Err(AppendError::Indeterminate))
            }),
            Err(TrySendError::Closed(_)) => LogFuture::ready(Err(self.closed().into())),
            Err(TrySendError::Full(append)) => {
                let (writes, closed) = (self.writes.clone(), self.closed());
                LogFuture::waiting(async move {
                    writes.send(append).await.map_err(|_| closed)?;
                    answer.await.unwrap_or(Err(AppendError::Indeterminate))
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
        let stream = stream.clone();
        LogFuture::waiting(self.ask(move |reader| reader.read(&stream, from, limit)))
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (log, stream) = (self.clone(), stream.clone());
        LogFuture::waiting(async move {
            let follower = StreamFollower::new(log.notifier.clone(), stream.clone());
            loop {
                // The notification is created before the read, so that the tail misses no later append.
                let grown = follower.grown.notified();
                let records = log.read(&stream, from, limit).await?;
                if !records.is_empty() || limit == 0 {
                    return Ok(records);
                }
                // A timeout is not an error: it is time to check for records of other processes.
                drop(timeout(Duration::from_millis(TAIL_POLL_MS), grown).await);
            }
        })
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let prefix = prefix.to_owned();
        LogFuture::waiting(self.ask(move |reader| reader.list(&prefix)))
    }

    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        let prefix = prefix.to_owned();
        LogFuture::waiting(self.ask(move |reader| reader.list_newest_first(&prefix)))
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        let (stream, reads) = (stream.clone(), self.reads.clone());
        LogFuture::waiting(self.ask(move |reader| {
            Ok(match reader.locks.try_lock(&stream)? {
                FileLockAttempt::Locked(file) => {
                    LockAttempt::Locked(stream_lock(stream, file, reads))
                }
                FileLockAttempt::HeldBy(owner) => LockAttempt::HeldBy(owner),
            })
        }))
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        let stream = stream.clone();
        LogFuture::waiting(self.ask(move |reader| reader.locks.owner(&stream)))
    }

    /// This check runs on the reader's thread, because a read of `/proc` may hang.
    fn is_other_process_running(
        &self,
        owner: &ProcessIdentity,
    ) -> LogFuture<Result<bool, LogError>> {
        let owner = owner.clone();
        LogFuture::waiting(self.ask(move |_| Ok(is_another_process_alive(&owner))))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        let (writes, closed) = (self.writes.clone(), self.closed());
        LogFuture::waiting(async move {
            let (reply, answer) = oneshot::channel();
            let delete = WriteCommand::Delete(QueuedDeletion { lock, reply });
            writes.send(delete).await.map_err(|_| closed.clone())?;
            answer.await.unwrap_or(Err(closed))
        })
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        let (writes, closed) = (self.writes.clone(), self.closed());
        LogFuture::waiting(async move {
            let (reply, answer) = oneshot::channel();
            let delete = WriteCommand::DeleteUnchanged { streams, reply };
            writes.send(delete).await.map_err(|_| closed.clone())?;
            answer.await.unwrap_or(Err(closed))
        })
    }

    /// The file of the store, the other files that SQLite writes, and the folder of the locks.
    fn files(&self) -> Vec<PathBuf> {
        files::paths(&self.resolved)
    }

    fn write_back(&self) -> LogFuture<Result<(), LogError>> {
        let (writes, closed) = (self.writes.clone(), self.closed());
        LogFuture::waiting(async move {
            let (reply, answer) = oneshot::channel();
            let write_back = WriteCommand::WriteBack(reply);
            writes.send(write_back).await.map_err(|_| closed.clone())?;
            answer.await.unwrap_or(Err(closed))
        })
    }

    fn close(&self) -> LogFuture<()> {
        let log = self.clone();
        LogFuture::waiting(async move {
            // Close the reader first, so that the writer's connection is the last one. If a thread has already ended,
            // it needs no command.
            drop(log.reads.send(Box::new(StoreReader::close)).await);
            log.reading.closed().await;
            drop(log.writes.send(WriteCommand::Close).await);
            log.writing.closed().await;
        })
    }
}

impl fmt::Debug for SqliteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteLog").field(&self.path).finish()
    }
}
