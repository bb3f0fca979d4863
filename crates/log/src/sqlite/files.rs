//! Files of an open store. This module checks that the paths of the store still lead to these files.
//!
//! SQLite keeps its files open, and continues to write to these files after they were moved, removed or replaced. A
//! commit then succeeds, but no process can ever read the committed records. So this module checks the paths before and
//! after each commit, and before each read.
//!
//! The check does not notice that another program writes bytes into the files. SQLite finds some of these changes when
//! it reads.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::classify::{io_error, sqlite_error};
use super::lock_folder::LockFolder;
use super::write_back;
use crate::{LogError, LogErrorKind};

/// Files of a store that one connection holds open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// Path of the store as the caller wrote it.
    given: PathBuf,
    /// Path of the store without symbolic links. SQLite derives the names of its other files from this path.
    store: PathBuf,
    main: OpenFile,
    /// The write-ahead log.
    log: OpenFile,
    /// The index of the write-ahead log.
    index: OpenFile,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    id: FileId,
    /// Length of the file at the last check.
    len: Cell<u64>,
}

/// Device and inode of a file. The connection keeps its files open, so no new file can get the inode of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// Returns the id of the file at this path. Symbolic links are followed, so a link with a new target also counts as
    /// a moved store.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        look_at(path).map(|(id, _)| id)
    }
}

/// Returns the id and the length of the file, and reads nothing else. If the modification time were read too, the next
/// sync would also write the modification time. Such syncs made commits a third slower (Linux 6.13 and later).
#[cfg(target_os = "linux")]
fn look_at(path: &Path) -> io::Result<(FileId, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

    let wanted = StatxFlags::INO | StatxFlags::SIZE;
    let found = statx(CWD, path, AtFlags::empty(), wanted)?;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok((FileId(device, found.stx_ino), found.stx_size))
}

/// Returns the id and the length of the file.
#[cfg(not(target_os = "linux"))]
fn look_at(path: &Path) -> io::Result<(FileId, u64)> {
    use std::os::unix::fs::MetadataExt as _;

    let found = std::fs::metadata(path)?;
    Ok((FileId(found.dev(), found.ino()), found.len()))
}

impl OpenFile {
    fn at(path: PathBuf) -> Result<Self, LogError> {
        let (id, len) = look_at(&path).map_err(|error| io_error(&path, error))?;
        let len = Cell::new(len);
        Ok(Self { path, id, len })
    }

    /// True if the file is still at its path and is not shorter than before. The write-ahead log also becomes shorter
    /// when a process writes it back, and the store when a process compacts it; the file then has at least `len_min`
    /// bytes. Otherwise a file of an open store becomes shorter only if a user truncates it.
    fn is_there(&self, len_min: impl FnOnce() -> Result<u64, LogError>) -> Result<bool, LogError> {
        match look_at(&self.path) {
            Ok((id, len)) if id == self.id => {
                let is_whole = len >= self.len.get() || len >= len_min()?;
                if is_whole {
                    self.len.set(len);
                }
                Ok(is_whole)
            }
            Ok(_) => Ok(false),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(io_error(&self.path, error)),
        }
    }
}

impl OpenFiles {
    /// The files of the store at this path. A connection has already opened and read them.
    pub(super) fn of(path: &Path) -> Result<Self, LogError> {
        let store = path.canonicalize().map_err(|error| io_error(path, error))?;
        // Use the path as the caller wrote it, because the next process that opens the store will use this path.
        Ok(Self {
            given: path.to_owned(),
            main: OpenFile::at(path.to_owned())?,
            log: OpenFile::at(beside(&store, "-wal"))?,
            index: OpenFile::at(beside(&store, "-shm"))?,
            store,
        })
    }

    /// The path of the store, without symbolic links.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Returns an error if a path no longer leads to the open file, or if the file has become shorter.
    pub(super) fn check(&self, connection: &Connection) -> Result<(), LogError> {
        let log_len = || {
            let len = write_back::log_len(connection);
            len.map_err(|error| sqlite_error(&self.log.path, error))
        };
        let main_len = || {
            let len = write_back::main_len(connection);
            len.map_err(|error| sqlite_error(&self.main.path, error))
        };
        for (file, is_there) in [
            (&self.main, self.main.is_there(main_len)?),
            (&self.log, self.log.is_there(log_len)?),
            (&self.index, self.index.is_there(|| Ok(u64::MAX))?),
        ] {
            if !is_there {
                let place = file.path.display().to_string();
                return Err(LogError::new(LogErrorKind::Replaced, place));
            }
        }
        if self.is_found_beside_its_log() {
            Ok(())
        } else {
            let place = self.given.display().to_string();
            Err(LogError::new(LogErrorKind::Replaced, place))
        }
    }

    /// True if the next process that opens the store will find the write-ahead log that this connection writes. False
    /// if the store was moved, and a symbolic link at the old path leads to the new place. The link then leads to the
    /// same store file, but SQLite uses another write-ahead log, next to the target of the link.
    fn is_found_beside_its_log(&self) -> bool {
        match self.given.canonicalize() {
            Ok(now) if now == self.store => true,
            Ok(now) => {
                let log = FileId::at(&beside(&now, "-wal"));
                log.is_ok_and(|log| log == self.log.id)
            }
            Err(_) => false,
        }
    }
}

/// All paths that belong to the store at this path. The path must not contain symbolic links.
pub(super) fn paths(store: &Path) -> Vec<PathBuf> {
    let mut paths = vec![store.to_owned()];
    paths.extend(["-wal", "-shm", "-journal"].map(|end| beside(store, end)));
    paths.extend([REPAIR_MARK, ERASURE_MARK].map(|end| beside(store, end)));
    paths.push(LockFolder::beside(store).path().to_owned());
    paths
}

/// End of the name of the write-ahead log.
pub(super) const LOG: &str = "-wal";

/// End of the name of the index of the write-ahead log.
pub(super) const INDEX: &str = "-shm";

/// Path of a file that SQLite writes next to the store.
pub(super) fn beside(store: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(store);
    name.push(end);
    PathBuf::from(name)
}

/// End of the name of the file that marks a repair of the store that is not complete.
pub(super) const REPAIR_MARK: &str = ".repair";

/// End of the name of the file that marks an erasure that is not complete.
pub(super) const ERASURE_MARK: &str = ".erase";

/// True if a repair of the store at this path was interrupted.
pub(super) fn is_repair_unfinished(store: &Path) -> bool {
    std::fs::symlink_metadata(beside(store, REPAIR_MARK)).is_ok()
}
