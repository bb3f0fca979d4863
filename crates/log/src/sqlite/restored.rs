//! A back-up that was copied over the store, next to the write-ahead log of the store before it.
//!
//! SQLite would apply the log to the back-up, and mix the two stores. A back-up has a mark: the format version in its
//! header is that of a file without a write-ahead log. The file of a store in use never has this version.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::classify::io_error;
use super::connection::APPLICATION_ID;
use super::files::{INDEX, LOG, REPAIR_MARK, beside};
use super::new_store::lock_folder;
use crate::LogError;

/// Position of the read version and the write version in the header (SQLite, "Database File Format", 1.3.3).
const FORMAT_VERSIONS_AT: u64 = 18;
const WITHOUT_LOG: [u8; 2] = [1, 1];
const WITH_LOG: [u8; 2] = [2, 2];

/// Position of the id of the program in the header.
const APPLICATION_ID_AT: u64 = 68;

/// Marks a file as a back-up. No process has it open.
pub(super) fn mark(path: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&WITHOUT_LOG, FORMAT_VERSIONS_AT)?;
    file.sync_all()
}

/// If the file is a back-up, removes the log of the earlier store, and makes the file a store. This process must not have
/// the store open.
pub(super) fn adopt(path: &Path) -> Result<(), LogError> {
    if !is_back_up(path) {
        return Ok(());
    }
    let failed = |error| io_error(path, error);
    // Another process must not use a new log while the old log is removed.
    let _locked = lock_folder(path).map_err(failed)?;
    if !is_back_up(path) {
        return Ok(());
    }
    for end in [LOG, INDEX, REPAIR_MARK] {
        match fs::remove_file(beside(path, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    let file = File::options().write(true).open(path).map_err(failed)?;
    let written = file.write_all_at(&WITH_LOG, FORMAT_VERSIONS_AT);
    written.and_then(|()| file.sync_all()).map_err(failed)
}

fn is_back_up(path: &Path) -> bool {
    // SQLite reports a file that cannot be read.
    let Ok(file) = File::open(path) else {
        return false;
    };
    let (mut versions, mut id) = ([0; 2], [0; 4]);
    let read = file
        .read_exact_at(&mut versions, FORMAT_VERSIONS_AT)
        .and_then(|()| file.read_exact_at(&mut id, APPLICATION_ID_AT));
    read.is_ok() && versions == WITHOUT_LOG && id == APPLICATION_ID.to_be_bytes()
}
