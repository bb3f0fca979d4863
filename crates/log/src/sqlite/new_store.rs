//! A store that is not there yet is made as a whole and synced once.
//!
//! SQLite by itself would make it in the place where it is to be, in two transactions of four syncs each. Here the file
//! is written beside that place, synced, and then given its name in one step that fails if another process was first. Its
//! name is on the disk with the first commit: SQLite syncs the folder when it makes the write-ahead log.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection;

/// Where the header of a file says by which versions of SQLite it is written and read, and what says that a write-ahead
/// log belongs to it (the SQLite file format, 1.3.3). A database in memory has none.
const FORMAT_VERSIONS_AT: std::ops::Range<usize> = 18..20;
const WITH_WRITE_AHEAD_LOG: u8 = 2;

/// Makes the store, if nothing has its name. Why it cannot be made SQLite says better when it opens the file, and where
/// this way is closed (a file system without hard links) it makes the store itself.
pub(super) fn make(path: &Path) {
    if fs::symlink_metadata(path).is_ok() {
        return;
    }
    if let Err(error) = try_make(path) {
        tracing::debug!(store = %path.display(), %error, "the store is not made as a whole");
        // For its owner's eyes alone, as conversations are in it; SQLite gives the files beside it the same mode.
        drop(private(path));
    }
}

fn try_make(path: &Path) -> io::Result<()> {
    let image = image().map_err(io::Error::other)?;
    let beside = Beside(beside(path));
    let mut file = private(&beside.0)?;
    file.write_all(&image)?;
    file.sync_all()?;
    match fs::hard_link(&beside.0, path) {
        // Another process was first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// The bytes of an empty store.
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

/// A name that only this opening uses: of threads of this process, and of processes, no two have the same.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", ulid::Ulid::generate()));
    PathBuf::from(name)
}

/// The file that is given its name: removed in the end, whatever becomes of it.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // It may never have been made.
        drop(fs::remove_file(&self.0));
    }
}
