//! Creates a new store in one step that needs only one sync.
//!
//! SQLite itself would create the store at its final path, in two transactions with four syncs each. This module writes
//! the file under a temporary name, syncs the file, and then creates a link with the final name. If another process was
//! faster, the link fails. The final name becomes durable with the first commit, because SQLite syncs the folder when
//! it creates the write-ahead log.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::busy::BUSY_PAUSE;
use super::connection;
use super::files::{FileId, INDEX, LOG, beside};

/// Position of the read version and the write version in the file header (SQLite file format, 1.3.3). Both get the
/// value for a write-ahead log, which an in-memory database does not set.
const FORMAT_VERSIONS_AT: std::ops::Range<usize> = 18..20;
const WITH_WRITE_AHEAD_LOG: u8 = 2;

/// Maximum wait for the lock of the folder. Another process creates a store in milliseconds.
const FOLDER_WAIT_MAX: Duration = Duration::from_secs(1);

/// Part of the names of temporary files.
const NEW: &str = ".new-";

/// Creates the store if no file exists at its path. Reports no error, for two reasons. SQLite describes the problem
/// better when it opens the file. And if the link fails because the file system has no hard links, SQLite creates the
/// store itself.
pub(super) fn make(path: &Path) {
    let exists = || fs::symlink_metadata(path).is_ok();
    if exists() {
        return;
    }
    // Another process must not create the store while its earlier log is removed.
    let locked = lock_folder(path);
    if exists() {
        return;
    }
    let made = match (locked, log_of_removed_store(path)) {
        // Next to its log, the new store would contain records of the removed store, or would be damaged.
        (Ok(_lock), _) => remove_left(path).and_then(|()| try_make(path)),
        (Err(_no_locks), None) => try_make(path),
        // SQLite removes such a log, but only if the file of the store is empty.
        (Err(_no_locks), Some(log)) => Err(io::Error::other(format!("{} is left", log.display()))),
    };
    if let Err(error) = made {
        tracing::debug!(store = %path.display(), %error, "the store cannot be created in one step");
        // Only the user may read the file, because the store will contain conversations. SQLite's other files get the
        // same mode.
        drop(private(path));
    }
}

/// Locks the folder of the store. The wait is limited, because a user may hold this lock for longer (`flock FOLDER allstop
/// …`).
pub(super) fn lock_folder(path: &Path) -> io::Result<fs::File> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
    let started = Instant::now();
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(folder),
            Err(TryLockError::WouldBlock) if started.elapsed() < FOLDER_WAIT_MAX => {
                park_timeout(BUSY_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn try_make(path: &Path) -> io::Result<()> {
    let image = image().map_err(io::Error::other)?;
    let temporary = TemporaryStoreFile::of(path)?;
    let mut file = OpenOptions::new().write(true).open(temporary.path())?;
    file.write_all(&image)?;
    file.sync_all()?;
    match fs::hard_link(temporary.path(), path) {
        // Another process has created the store first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Removes the files that a removed store has left, and unfinished files of killed processes. The caller has locked the
/// folder.
fn remove_left(path: &Path) -> io::Result<()> {
    for end in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(path, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    for unfinished in temporary_files(path) {
        drop(fs::remove_file(unfinished));
    }
    Ok(())
}

/// Path of a log that a removed store has left.
fn log_of_removed_store(path: &Path) -> Option<PathBuf> {
    let mut logs = ["-wal", "-journal"].iter().map(|end| beside(path, end));
    logs.find(|log| fs::symlink_metadata(log).is_ok())
}

/// Bytes of an empty store.
pub(super) fn image() -> rusqlite::Result<Vec<u8>> {
    let mut made = Connection::open_in_memory()?;
    connection::make_tables(&made)?;
    let mut image = made.serialize(rusqlite::MAIN_DB)?.to_vec();
    if let Some(versions) = image.get_mut(FORMAT_VERSIONS_AT) {
        versions.fill(WITH_WRITE_AHEAD_LOG);
    }
    Ok(image)
}

/// Removes temporary links to the store that killed processes have left.
pub(super) fn remove_left_links(store: &Path) {
    let Ok(id) = FileId::at(store) else { return };
    for path in temporary_files(store) {
        if FileId::at(&path).is_ok_and(|found| found == id) {
            drop(fs::remove_file(path));
        }
    }
}

/// Files with temporary names for this path.
fn temporary_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let entries = fs::read_dir(folder.unwrap_or(Path::new(".")));
    let prefix = beside(path, NEW);
    let prefix = prefix.file_name().unwrap_or_default().to_owned();
    let is_temporary = move |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(prefix.as_encoded_bytes())
    };
    let paths = entries.into_iter().flatten().flatten();
    paths.map(|entry| entry.path()).filter(is_temporary)
}

/// Creates a file that only the user may read.
pub(super) fn private(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// A private file under a temporary name that no other thread and no other process uses. It is removed when this value
/// is dropped.
pub(super) struct TemporaryStoreFile(PathBuf);

impl TemporaryStoreFile {
    /// Creates an empty file next to this path.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let temporary = beside(path, &format!("{NEW}{}", ulid::Ulid::generate()));
        private(&temporary)?;
        Ok(Self(temporary))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryStoreFile {
    fn drop(&mut self) {
        // Some of the files do not exist, and the first one may have been removed.
        for end in ["", "-journal", LOG, INDEX] {
            drop(fs::remove_file(beside(&self.0, end)));
        }
    }
}
