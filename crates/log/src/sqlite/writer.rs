//! The thread that writes: it takes what waits, writes it in one transaction, and answers when that is on the disk.
//!
//! Invariants:
//! 1. Nothing is answered before the commit that it depends on has returned: neither a success nor a conflict with a
//!    neighbour in the same group.
//! 2. Of a group that fails, each append is tried alone, so that one that does not fit fails none of its neighbours.
//! 3. Nothing is written, and nothing is confirmed, while a path of the store names another file than the open one.
//! 4. What is remembered of streams is forgotten when another connection has written, and when a commit has failed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::classify::sqlite_error;
use super::connection::OpenStore;
use super::files::OpenFiles;
use super::growth::Growth;
use super::streams::{INSERT, Streams};
use crate::{AppendError, AppendId, LogError, RecordBytes, StreamLock, StreamName, Version};

/// Appends that are written in one transaction. One sync for 256 is a hundredth of the time of writing them; more
/// would only make the first of them wait.
const GROUP_LEN_MAX: usize = 256;
/// Bytes that are written in one transaction, so that a few long answers do not hold up many short ones for long.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How long a group waits to become as long as the one before it: those whom that one answered are about to ask again,
/// and a group that starts without them leaves them behind for a whole sync. A lone writer never waits.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum WriteCommand {
    Append(Append),
    Delete {
        /// Comes along, so that nobody takes it before the stream is gone, even if who asked has left.
        lock: StreamLock,
        reply: oneshot::Sender<Result<(), LogError>>,
    },
    /// Take no more, finish what waits, and end.
    Close,
}

#[derive(Debug)]
pub(super) struct Append {
    pub(super) stream: StreamName,
    pub(super) expected: Version,
    pub(super) id: AppendId,
    pub(super) records: Vec<RecordBytes>,
    pub(super) reply: oneshot::Sender<Result<Version, AppendError>>,
}

impl Append {
    fn bytes(&self) -> usize {
        self.records.iter().map(RecordBytes::len).sum()
    }
}

pub(super) struct Writer {
    connection: Connection,
    files: OpenFiles,
    path: Arc<Path>,
    streams: Streams,
    growth: Arc<Growth>,
}

/// Why a group was not written.
enum GroupError {
    /// Before or by the commit: nothing of it is there.
    NotWritten(LogError),
    /// In the commit, of which parts may have reached the disk, or a file that is no longer the store's.
    Indeterminate(LogError),
}

impl Writer {
    pub(super) fn new(store: OpenStore, path: Arc<Path>, growth: Arc<Growth>) -> Self {
        let OpenStore { connection, files } = store;
        Self {
            connection,
            files,
            path,
            streams: Streams::default(),
            growth,
        }
    }

    /// Serves until the store is closed or dropped and nothing waits any more.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<WriteCommand>) {
        let mut group = Vec::with_capacity(GROUP_LEN_MAX);
        let mut len_before = 1;
        while let Some(first) = commands.blocking_recv() {
            let last = gather(&mut commands, first, len_before, &mut group);
            len_before = group.len();
            self.append_group(&mut group);
            match last {
                Some(WriteCommand::Delete { lock, reply }) => {
                    let answer = self.delete(lock.stream());
                    drop(lock);
                    // Who asked may have gone; the stream is deleted all the same.
                    drop(reply.send(answer));
                }
                Some(WriteCommand::Close) => commands.close(),
                Some(WriteCommand::Append(_)) | None => {}
            }
        }
    }

    /// Writes the group and answers it, and leaves it empty.
    fn append_group(&mut self, group: &mut Vec<Append>) {
        if group.is_empty() {
            return;
        }
        match self.write(group) {
            Ok(answers) => {
                for (append, answer) in group.drain(..).zip(answers) {
                    if answer.is_ok() {
                        self.growth.grown(&append.stream);
                    }
                    // Who asked may have gone; what was written stays.
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

    fn write(&mut self, group: &[Append]) -> Result<Vec<Result<Version, AppendError>>, GroupError> {
        // Looked at before, so that what is refused is known not to be written; and after, so that what is confirmed is
        // where the next one to open the store finds it.
        self.files.check().map_err(GroupError::NotWritten)?;
        let path = Arc::clone(&self.path);
        let named = |error| sqlite_error(&path, error);
        let committed = match self.write_uncommitted(group) {
            Ok(answers) => match self.connection.execute_batch("COMMIT") {
                Ok(()) => match self.files.check() {
                    Ok(()) => return Ok(answers),
                    Err(error) => GroupError::Indeterminate(error),
                },
                Err(error) if failed_in_writing(&error) => GroupError::NotWritten(named(error)),
                Err(error) => GroupError::Indeterminate(named(error)),
            },
            Err(error) => GroupError::NotWritten(named(error)),
        };
        self.streams.forget();
        // After some failures SQLite has rolled back by itself.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(store = %self.path.display(), %error, "a rollback failed");
        }
        Err(committed)
    }

    fn delete(&mut self, stream: &StreamName) -> Result<(), LogError> {
        self.files.check()?;
        self.streams
            .delete(&mut self.connection, stream)
            .map_err(|error| sqlite_error(&self.path, error))?;
        self.files.check()
    }

    fn write_uncommitted(
        &mut self,
        group: &[Append],
    ) -> rusqlite::Result<Vec<Result<Version, AppendError>>> {
        let Self {
            connection,
            streams,
            ..
        } = self;
        // Writers of other processes wait here, so the versions that are read next stay what they are.
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

/// Whether a commit failed before its last page, which makes it count, was written; not in the sync that comes after.
fn failed_in_writing(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|e| {
        e.code == ErrorCode::DiskFull || e.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE
    })
}

/// Takes what waits, at most a group of it. Returns the command that ended the group, if it was not an append.
fn gather(
    commands: &mut mpsc::Receiver<WriteCommand>,
    first: WriteCommand,
    len_before: usize,
    group: &mut Vec<Append>,
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
