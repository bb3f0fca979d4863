//! The thread that writes. The thread writes the waiting appends as a group in one transaction, and answers when the
//! group is on the disk.
//!
//! Invariants:
//! 1. Every answer comes after the commit on which it depends. This is true even for a conflict with another append of
//!    the same group.
//! 2. If a group fails, each append is tried separately, so that only the append that does not fit fails.
//! 3. If a path of the store no longer leads to the open file, nothing is written and nothing is confirmed.
//! 4. The cache of streams is cleared when another connection has written, and when a commit has failed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::classify::{StoreError, sqlite_error};
use super::connection::OpenStore;
use super::erasure_mark::ErasureMark;
use super::files::OpenFiles;
use super::open_mark::OpenMark;
use super::stream_notifier::StreamNotifier;
use super::streams::{INSERT, StreamCache};
use super::thread::{ReceivedCommand, receive_until};
use super::write_back::{WriteBackTimer, write_back};
use crate::{AppendError, AppendId, LogError, RecordBytes, StreamLock, StreamName, Version};

/// Maximum number of appends in one transaction. With 256 appends, the sync takes 1 % of the writing time. More appends
/// would delay the first append.
const GROUP_LEN_MAX: usize = 256;
/// Maximum number of bytes in one transaction, so that a few long appends do not delay many short appends for a long
/// time.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Maximum time that a group waits until it has as many appends as the previous group. Callers that have just received
/// an answer soon send their next append. Without the wait, these appends would miss the group and wait for a whole
/// sync. If there is only one writer, the group never waits.
const GATHER_MAX: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(super) enum WriteCommand {
    Append(QueuedAppend),
    Delete(QueuedDeletion),
    DeleteUnchanged {
        streams: Vec<(StreamName, Version)>,
        reply: oneshot::Sender<Result<Vec<StreamName>, LogError>>,
    },
    /// Write the log back into the file of the store.
    WriteBack(oneshot::Sender<Result<(), LogError>>),
    /// Accept no more commands, finish the queued commands, and end.
    Close,
}

#[derive(Debug)]
pub(super) struct QueuedDeletion {
    /// Held until the stream is deleted, even if the caller no longer waits. So no other owner can take the lock before
    /// the deletion.
    pub(super) lock: StreamLock,
    pub(super) reply: oneshot::Sender<Result<(), LogError>>,
}

#[derive(Debug)]
pub(super) struct QueuedAppend {
    pub(super) stream: StreamName,
    pub(super) expected: Version,
    pub(super) id: AppendId,
    pub(super) records: Vec<RecordBytes>,
    pub(super) reply: oneshot::Sender<Result<Version, AppendError>>,
}

impl QueuedAppend {
    fn bytes(&self) -> usize {
        self.records.iter().map(RecordBytes::len).sum()
    }
}

pub(super) struct StoreWriter {
    connection: Connection,
    files: OpenFiles,
    /// Dropped after the connection.
    _mark: Option<OpenMark>,
    path: Arc<Path>,
    streams: StreamCache,
    write_back: WriteBackTimer,
    erasure: ErasureMark,
    notifier: Arc<StreamNotifier>,
}

enum GroupError {
    /// The group failed before or during the commit, and nothing is written.
    NotWritten(LogError),
    /// The commit failed after parts of it may have reached the disk, or the file no longer belongs to the store.
    Indeterminate(LogError),
}

impl StoreWriter {
    pub(super) fn new(store: OpenStore, path: Arc<Path>, notifier: Arc<StreamNotifier>) -> Self {
        let OpenStore {
            connection,
            files,
            mark,
        } = store;
        Self {
            erasure: ErasureMark::of(files.store()),
            connection,
            files,
            _mark: mark,
            path,
            streams: StreamCache::default(),
            write_back: WriteBackTimer::default(),
            notifier,
        }
    }

    /// Runs until the store is closed or dropped, and the queue is empty.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<WriteCommand>) {
        let mut group = Vec::with_capacity(GROUP_LEN_MAX);
        let mut len_before = 1;
        let mut next = None;
        if self.erasure.is_set() {
            self.write_back.committed(Instant::now());
        }
        loop {
            let first = match next.take() {
                Some(next) => next,
                None => match receive_until(&mut commands, self.write_back.due()) {
                    ReceivedCommand::Command(first) => first,
                    ReceivedCommand::TimedOut => {
                        self.try_write_back();
                        continue;
                    }
                    ReceivedCommand::Closed => return,
                },
            };
            let last = gather(&mut commands, first, len_before, &mut group);
            len_before = group.len();
            self.append_group(&mut group);
            match last {
                Some(WriteCommand::Delete(first)) => {
                    let mut deletions = vec![first];
                    next = gather_deletions(&mut commands, &mut deletions);
                    self.delete_locked(deletions);
                }
                Some(WriteCommand::DeleteUnchanged { streams, reply }) => {
                    let expected = streams.into_iter().map(|(name, at)| (name, Some(at)));
                    let answer = self.delete(&expected.collect::<Vec<_>>());
                    drop(reply.send(answer));
                }
                Some(WriteCommand::WriteBack(reply)) => {
                    let written = self.write_back();
                    let written = written.map_err(|error| sqlite_error(&self.path, error));
                    drop(reply.send(written));
                }
                Some(WriteCommand::Close) => commands.close(),
                Some(WriteCommand::Append(_)) | None => {}
            }
            if self.write_back.is_due(Instant::now()) {
                self.try_write_back();
            }
        }
    }

    fn try_write_back(&mut self) {
        if let Err(error) = self.write_back() {
            tracing::warn!(store = %self.path.display(), %error, "the log cannot be written back");
        }
    }

    /// Writes the log back, unless another connection uses it now. In that case, another attempt follows.
    fn write_back(&mut self) -> rusqlite::Result<()> {
        let written = write_back(&mut self.connection);
        let is_written = matches!(written, Ok(true));
        self.write_back.tried(is_written, Instant::now());
        if is_written {
            self.erasure.clear();
        }
        written.map(drop)
    }

    /// Writes the appends of the group, answers them, and clears the group.
    fn append_group(&mut self, group: &mut Vec<QueuedAppend>) {
        if group.is_empty() {
            return;
        }
        match self.write(group) {
            Ok(answers) => {
                for (append, answer) in group.drain(..).zip(answers) {
                    if answer.is_ok() {
                        self.notifier.notify_grown(&append.stream);
                    }
                    // The caller may no longer wait. The records stay in the store.
                    drop(append.reply.send(answer));
                }
            }
            Err(GroupError::NotWritten(_)) if group.len() > 1 => {
                for append in group.drain(..) {
                    self.append_group(&mut vec![append]);
                }
            }
            Err(GroupError::NotWritten(error)) => {
                for append in group.drain(..) {
                    drop(append.reply.send(Err(error.clone().into())));
                }
            }
            Err(GroupError::Indeterminate(error)) => {
                tracing::warn!(%error, "a commit failed halfway");
                for append in group.drain(..) {
                    drop(append.reply.send(Err(AppendError::Indeterminate)));
                }
            }
        }
    }

    fn write(
        &mut self,
        group: &[QueuedAppend],
    ) -> Result<Vec<Result<Version, AppendError>>, GroupError> {
        // The check before the commit proves that a refused append is not written. The check after the commit proves
        // that the next process that opens the store finds a confirmed append.
        let before = self.files.check(&self.connection);
        before.map_err(GroupError::NotWritten)?;
        let path = Arc::clone(&self.path);
        let named = |error| sqlite_error(&path, error);
        let committed = match self.write_uncommitted(group) {
            Ok(answers) => match self.connection.execute_batch("COMMIT") {
                Ok(()) => match self.files.check(&self.connection) {
                    Ok(()) => {
                        self.write_back.committed(Instant::now());
                        return Ok(answers);
                    }
                    Err(error) => GroupError::Indeterminate(error),
                },
                Err(error) if failed_in_writing(&error) => GroupError::NotWritten(named(error)),
                Err(error) => GroupError::Indeterminate(named(error)),
            },
            Err(error) => GroupError::NotWritten(error.at(&path)),
        };
        self.streams.forget();
        // After some errors, SQLite itself has already rolled back the transaction.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(store = %self.path.display(), %error, "a rollback failed");
        }
        Err(committed)
    }

    /// Deletes the streams in one transaction, and answers the requests.
    fn delete_locked(&mut self, deletions: Vec<QueuedDeletion>) {
        let named = |deletion: &QueuedDeletion| (deletion.lock.stream().clone(), None);
        let streams: Vec<_> = deletions.iter().map(named).collect();
        let answer = self.delete(&streams).map(drop);
        for QueuedDeletion { lock, reply } in deletions {
            drop(lock);
            // The caller may no longer wait. The stream is deleted anyway.
            drop(reply.send(answer.clone()));
        }
    }

    /// Deletes the streams in one transaction. Returns the streams that are gone.
    fn delete(
        &mut self,
        streams: &[(StreamName, Option<Version>)],
    ) -> Result<Vec<StreamName>, LogError> {
        self.files.check(&self.connection)?;
        self.erasure.set();
        let gone = self.streams.delete(&mut self.connection, streams);
        let gone = gone.map_err(|error| sqlite_error(&self.path, error))?;
        self.files.check(&self.connection)?;
        // The write-ahead log still contains the text of the deleted records.
        self.write_back.committed(Instant::now());
        self.try_write_back();
        Ok(gone)
    }

    fn write_uncommitted(
        &mut self,
        group: &[QueuedAppend],
    ) -> Result<Vec<Result<Version, AppendError>>, StoreError> {
        let Self {
            connection,
            streams,
            ..
        } = self;
        // From this line on, writers of other processes wait, so the versions in the following reads cannot change.
        connection.execute_batch("BEGIN IMMEDIATE")?;
        streams.forget_if_another_wrote(connection)?;
        let mut answers = Vec::with_capacity(group.len());
        let mut insert = connection.prepare_cached(INSERT)?;
        for append in group {
            answers.push(streams.append(connection, &mut insert, append)?);
        }
        streams.write_versions(connection)?;
        Ok(answers)
    }
}

/// Collects the waiting deletions. If another command follows them, returns this command.
fn gather_deletions(
    commands: &mut mpsc::Receiver<WriteCommand>,
    deletions: &mut Vec<QueuedDeletion>,
) -> Option<WriteCommand> {
    while deletions.len() < GROUP_LEN_MAX {
        match commands.try_recv() {
            Ok(WriteCommand::Delete(deletion)) => deletions.push(deletion),
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}

/// True if a commit failed before its last page was written. The commit is valid only with its last page. False if the
/// sync after the last page failed.
fn failed_in_writing(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|e| {
        e.code == ErrorCode::DiskFull || e.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
    })
}

/// Collects the waiting appends into a group. If another command ended the group, returns this command.
fn gather(
    commands: &mut mpsc::Receiver<WriteCommand>,
    first: WriteCommand,
    len_before: usize,
    group: &mut Vec<QueuedAppend>,
) -> Option<WriteCommand> {
    let started = Instant::now();
    let mut bytes = 0;
    let mut next = Some(first);
    loop {
        match next {
            Some(WriteCommand::Append(append)) => {
                bytes += append.bytes();
                group.push(append);
            }
            Some(other) => return Some(other),
            None if group.len() >= len_before || started.elapsed() >= GATHER_MAX => return None,
            None => std::thread::yield_now(),
        }
        if group.len() >= GROUP_LEN_MAX || bytes >= GROUP_BYTES_MAX {
            return None;
        }
        next = commands.try_recv().ok();
    }
}
