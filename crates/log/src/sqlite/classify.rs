//! Classifies the errors of SQLite and of the operating system.

use std::fs;
use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rustix::fs::{Access, access};

use super::record_chain::ChainError;
use crate::{LogError, LogErrorKind, StreamName, Version};

/// Error of a store, before its path is known.
#[derive(Debug)]
pub(super) enum StoreError {
    /// A record of this stream is missing or damaged.
    DamagedStream(StreamName, Option<Version>, Option<rusqlite::Error>),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl ChainError {
    /// Adds the name of the stream.
    pub(super) fn of_stream(self, stream: &StreamName) -> StoreError {
        let is_damage = self.is_damage();
        match self {
            Self::Damaged(number) => StoreError::DamagedStream(stream.clone(), Some(number), None),
            Self::Sqlite(error) if is_damage => {
                StoreError::DamagedStream(stream.clone(), None, Some(error))
            }
            Self::Sqlite(error) => StoreError::Sqlite(error),
        }
    }
}

impl StoreError {
    /// Adds the path of the store.
    pub(super) fn at(self, path: &Path) -> LogError {
        match self {
            Self::Sqlite(error) => sqlite_error(path, error),
            Self::DamagedStream(stream, number, error) => {
                let record = number
                    .map(|number| format!("record {number} of "))
                    .unwrap_or_default();
                let place = format!("{record}{stream} in {}", path.display());
                let found = LogError::new(LogErrorKind::DamagedStream, place).in_store(path);
                match error {
                    Some(error) => found.caused_by(error),
                    None => found,
                }
            }
        }
    }
}

/// Converts an error of SQLite for the store at this path.
pub(super) fn sqlite_error(path: &Path, error: rusqlite::Error) -> LogError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LogErrorKind::Busy,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => LogErrorKind::ReadOnly,
        Some(ErrorCode::DiskFull) => LogErrorKind::Full,
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => LogErrorKind::Corrupt,
        Some(ErrorCode::OperationInterrupted) => LogErrorKind::Stopped,
        Some(ErrorCode::CannotOpen) => why_it_cannot_be_opened(path),
        // SQLite returns this code if the disk is full when the index of the write-ahead log must grow.
        _ if extended_code(&error) == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
            LogErrorKind::Full
        }
        _ => LogErrorKind::Io,
    };
    let found = LogError::new(kind, path.display().to_string()).in_store(path);
    // The kind that was found above is more precise than SQLite's error. SQLite's error also repeats the path twice.
    if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && kind != LogErrorKind::Io {
        return found;
    }
    found.caused_by(error)
}

/// True if a stop ended the statement.
pub(super) fn is_stopped(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

fn extended_code(error: &rusqlite::Error) -> Option<std::ffi::c_int> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// Converts an error of the operating system for a file at this path.
pub(super) fn io_error(path: &Path, error: io::Error) -> LogError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LogErrorKind::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            LogErrorKind::ReadOnly
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            LogErrorKind::Full
        }
        _ => LogErrorKind::Io,
    };
    LogError::new(kind, path.display().to_string())
        .in_store(path)
        .caused_by(error)
}

/// Finds the reason, because SQLite does not report it. This function never opens the file. If it did, closing the file
/// would release the locks that another connection of this process holds on the file.
fn why_it_cannot_be_opened(path: &Path) -> LogErrorKind {
    let folder = match path.parent() {
        Some(folder) if folder.is_dir() => folder,
        _ => return LogErrorKind::NotFound,
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return LogErrorKind::Corrupt,
        Ok(_) if access(path, Access::READ_OK | Access::WRITE_OK).is_err() => {
            return LogErrorKind::ReadOnly;
        }
        _ => {}
    }
    if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return LogErrorKind::ReadOnly;
    }
    LogErrorKind::Io
}
