//! Reading of a store on a read-only file system. SQLite cannot read the write-ahead log of such a store, so a private
//! copy in the folder for temporary files is read.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use rustix::fs::{StatVfsMountFlags, statvfs};
use tokio::sync::oneshot;

use super::SqliteLog;
use super::classify::io_error;
use super::connection::OpenStore;
use super::files::beside;
use super::{open_stores, thread};
use crate::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogErrorKind, LogFuture, LogWrapper,
    RecordBytes, StreamLock, StreamName, Version,
};

/// Opens a store that will only be read. On a read-only file system, opens a copy, which refuses each change.
///
/// # Cancel safety
/// If the future is dropped, an empty store may remain, as for [`SqliteLog::open`].
///
/// # Errors
/// Returns the errors of [`SqliteLog::open`], and errors of the copy.
pub async fn open_for_reading(path: &Path) -> Result<Arc<dyn Log>, LogError> {
    let refused = match SqliteLog::open(path).await {
        Ok(log) => return Ok(Arc::new(log)),
        Err(error) => error,
    };
    if refused.kind() != LogErrorKind::ReadOnly || !is_on_read_only_file_system(path) {
        return Err(refused);
    }
    let (reply, copied) = oneshot::channel();
    let store = path.to_owned();
    thread::start("allstop-copy", move || {
        drop(reply.send(StoreCopy::of(&store)));
    })
    .map_err(|error| io_error(path, error))?;
    let copy = copied.await.unwrap_or(Err(refused))?;
    let log = SqliteLog::open(copy.path()).await?;
    Ok(Arc::new(CopiedLog {
        log,
        store: path.display().to_string().into(),
        _copy: Arc::new(copy),
    }))
}

/// Like [`open_stores::open`]. On a read-only file system, opens a copy, which must be dropped after the store.
pub(super) fn open_store_or_copy(path: &Path) -> Result<(OpenStore, Option<StoreCopy>), LogError> {
    match open_stores::open(path) {
        Err(error)
            if error.kind() == LogErrorKind::ReadOnly && is_on_read_only_file_system(path) =>
        {
            let copy = StoreCopy::of(path)?;
            Ok((open_stores::open(&copy.path())?, Some(copy)))
        }
        opened => Ok((opened?, None)),
    }
}

/// True if no process can change the store, so a copy of its files is consistent.
fn is_on_read_only_file_system(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Private copy of a store. The copy is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct StoreCopy {
    folder: PathBuf,
}

impl StoreCopy {
    /// Copies the store at this path.
    pub(super) fn of(store: &Path) -> Result<Self, LogError> {
        let name = format!("allstop-{}", ulid::Ulid::generate());
        let folder = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| io_error(&folder, error))?;
        let copy = Self { folder };
        for end in ["", "-wal"] {
            match fs::copy(beside(store, end), beside(&copy.path(), end)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !end.is_empty() => {}
                copied => drop(copied.map_err(|error| io_error(store, error))?),
            }
        }
        Ok(copy)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.join("store.db")
    }
}

impl Drop for StoreCopy {
    fn drop(&mut self) {
        // The system removes old files in this folder.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// Log of a copy. A change would be lost with the copy, so it is refused.
#[derive(Debug)]
struct CopiedLog {
    log: SqliteLog,
    store: Arc<str>,
    /// Dropped after the log.
    _copy: Arc<StoreCopy>,
}

impl CopiedLog {
    fn refused<T: Send + 'static, E: From<LogError> + Send + 'static>(
        &self,
    ) -> LogFuture<Result<T, E>> {
        let refused = LogError::new(LogErrorKind::ReadOnly, Arc::clone(&self.store));
        LogFuture::ready(Err(refused.into()))
    }
}

impl LogWrapper for CopiedLog {
    fn inner(&self) -> &dyn Log {
        &self.log
    }

    fn append(
        &self,
        _stream: &StreamName,
        _expected: Version,
        _id: AppendId,
        _records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        self.refused()
    }

    fn try_lock(&self, _stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        self.refused()
    }

    /// No process can hold a lock on a read-only file system.
    fn lock_owner(
        &self,
        _stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        LogFuture::ready(Ok(None))
    }

    fn delete(&self, _lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        self.refused()
    }

    fn delete_unchanged(
        &self,
        _streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        self.refused()
    }
}
