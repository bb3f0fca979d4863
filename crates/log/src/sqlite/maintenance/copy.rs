//! Back-up and compaction: a copy of all records in a new file, and in the same file.

use std::fs;
use std::io;
use std::path::Path;

use super::super::classify::{io_error, sqlite_error};
use super::super::files::{INDEX, LOG, beside};
use super::super::read_only::open_store_or_copy;
use super::super::write_back::write_back;
use super::super::{new_store, open_stores, restored};
use super::check::{Progress, StoreCheckReport, check};
use super::stop::MaintenanceStop;
use crate::{LogError, LogErrorKind};

/// Result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// Length of the file before, in bytes.
    pub before: u64,
    /// Length of the file now, in bytes.
    pub after: u64,
    /// False if another process reads the store, so that removed text may still be in the write-ahead log. The log is
    /// written back later.
    pub is_written_back: bool,
}

/// Result of a back-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// Length of the copy in bytes.
    pub len: u64,
    /// Result of the check of the copy. Damage of the store is in the copy, too.
    pub check: StoreCheckReport,
}

pub(super) fn back_up(
    path: &Path,
    stop: &MaintenanceStop,
    to: &Path,
    progress: Progress,
) -> Result<BackupReport, LogError> {
    let failed = |error| io_error(to, error);
    // SQLite would read the log of a removed file as a part of the copy.
    for path in ["", LOG, INDEX, "-journal"].map(|end| beside(to, end)) {
        if fs::symlink_metadata(&path).is_ok() {
            return Err(io_error(&path, io::ErrorKind::AlreadyExists.into()));
        }
    }
    let (mut store, _read) = open_store_or_copy(path)?;
    let watched = stop.watch(&mut store.connection);
    watched.map_err(|error| sqlite_error(path, error))?;
    // The copy gets its name when it is complete, on the disk and checked.
    let copy = new_store::TemporaryStoreFile::of(to).map_err(failed)?;
    let name = copy.path().to_string_lossy().into_owned();
    let copied = store.connection.execute("VACUUM INTO ?1", [name]);
    copied.map_err(|error| {
        let found = sqlite_error(path, error);
        let is_full = found.kind() == LogErrorKind::Full;
        if is_full {
            LogError::new(LogErrorKind::Full, to.display().to_string())
        } else {
            found
        }
    })?;
    let check = check(copy.path(), stop, progress)?;
    restored::mark(copy.path()).map_err(failed)?;
    let len = fs::metadata(copy.path()).map_err(failed)?.len();
    fs::hard_link(copy.path(), to).map_err(failed)?;
    Ok(BackupReport { len, check })
}

pub(super) fn compact(path: &Path, stop: &MaintenanceStop) -> Result<CompactReport, LogError> {
    let mut store = open_stores::open(path)?;
    let failed = |error| sqlite_error(path, error);
    let len = || {
        let found = fs::metadata(path).map_err(|error| io_error(path, error))?;
        Ok::<_, LogError>(found.len())
    };
    stop.watch(&mut store.connection).map_err(failed)?;
    write_back(&mut store.connection).map_err(failed)?;
    let before = len()?;
    store.connection.execute_batch("VACUUM").map_err(failed)?;
    let is_written_back = write_back(&mut store.connection).map_err(failed)?;
    store.files.check(&store.connection)?;
    Ok(CompactReport {
        before,
        after: len()?,
        is_written_back,
    })
}

/// Error for a store that another process uses.
pub(super) fn in_use(path: &Path) -> LogError {
    LogError::new(LogErrorKind::Busy, path.display().to_string())
}
