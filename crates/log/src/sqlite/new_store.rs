//! Creates a new store in one step, with a single sync.
//!
//! SQLite itself would create the store in place, in two transactions of four syncs each. Here the file is written
//! under a temporary name, synced, and then linked to its name, which fails if another process was first. The name
//! becomes durable with the first commit: SQLite syncs the folder when it creates the write-ahead log.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection;

/// Position of the read and write versions in the file header, and the value for a write-ahead log (SQLite file
/// format, 1.3.3). An in-memory database does not set it.
const FORMAT_VERSIONS_AT: std::ops::Range<usize> = 18..20;
const WITH_WRITE_AHEAD_LOG: u8 = 2;

/// Creates the store if its path is free. Reports no error: SQLite describes the problem better when it opens the file,
/// and creates the store itself where the link fails (a file system without hard links).
pub(super) fn make(path: &Path) {
    if fs::symlink_metadata(path).is_ok() {
        return;
    }
    if let Err(error) = try_make(path) {
        tracing::debug!(store = %path.display(), %error, "the store cannot be created in one step");
        // Readable only for the user, because the store will hold conversations. SQLite's files next to it get the same
        // mode.
        drop(private(path));
    }
}

fn try_make(path: &Path) -> io::Result<()> {
    let image = image().map_err(io::Error::other)?;
    let temporary_path = NewStoreFile(temporary_path(path));
    let mut file = private(&temporary_path.0)?;
    file.write_all(&image)?;
    file.sync_all()?;
    match fs::hard_link(&temporary_path.0, path) {
        // Another process was first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Bytes of an empty store.
fn image() -> rusqlite::Result<Vec<u8>> {
    let mut made = Connection::open_in_memory()?;
    connection::make_tables(&made)?;
    let mut image = made.serialize(rusqlite::MAIN_DB)?.to_vec();
    if let Some(versions) = image.get_mut(FORMAT_VERSIONS_AT) {
        versions.fill(WITH_WRITE_AHEAD_LOG);
    }
    Ok(image)
}

fn private(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// A unique temporary name, distinct for all threads and processes.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", ulid::Ulid::generate()));
    PathBuf::from(name)
}

/// The temporary file, removed on drop.
struct NewStoreFile(PathBuf);

impl Drop for NewStoreFile {
    fn drop(&mut self) {
        // The file may never have been created.
        drop(fs::remove_file(&self.0));
    }
}
