//! Files of an open store, and the check that their paths still name them.
//!
//! SQLite holds its files open and continues to write them after they were moved, removed or replaced: a commit then
//! succeeds, but no process can ever read it. So the paths are checked around each commit and before each read.
//!
//! The check does not notice bytes that another program writes into the files. SQLite finds some of them on a read.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::classify::io_error;
use super::lock_folder::LockFolder;
use crate::{LogError, LogErrorKind};

/// Files of a store that one connection holds open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// Path of the store as given by the caller.
    given: PathBuf,
    /// Path of the store without symbolic links: SQLite names the neighbouring files after this path.
    store: PathBuf,
    files: Vec<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    id: FileId,
    /// Length at the last check.
    len: Cell<u64>,
}

/// Device and inode. The connection holds its files open, so their inodes cannot be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// Returns the id of the file at this path, following links: a link with a new target also means a moved store.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        look_at(path).map(|(id, _)| id)
    }
}

/// Returns the id and the length of the file, nothing else. A query of the modification time makes the next sync write
/// that time, too, which made commits a third slower (Linux 6.13 and later).
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

    /// True if the file is still at its path and not shorter. No file of an open store shrinks, unless a user truncates
    /// it or another SQLite tool shortens it.
    fn is_there(&self) -> Result<bool, LogError> {
        match look_at(&self.path) {
            Ok((id, len)) if id == self.id && len >= self.len.get() => {
                self.len.set(len);
                Ok(true)
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
    /// The files of the store at this path, which a connection has opened and read.
    pub(super) fn of(path: &Path) -> Result<Self, LogError> {
        let store = path.canonicalize().map_err(|error| io_error(path, error))?;
        // Use the given path, because the next opener will use it.
        let paths = [
            path.to_owned(),
            beside(&store, "-wal"),
            beside(&store, "-shm"),
        ];
        let files = paths.map(OpenFile::at);
        Ok(Self {
            given: path.to_owned(),
            store,
            files: files.into_iter().collect::<Result<_, _>>()?,
        })
    }

    /// The path of the store, without symbolic links.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Fails if a path no longer names the open file, or if the file has become shorter.
    pub(super) fn check(&self) -> Result<(), LogError> {
        for file in &self.files {
            if !file.is_there()? {
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

    /// True if the next opener of the store will find the write-ahead log that this connection writes. A link in place
    /// of the moved store leads to the same store file, but to another log next to the link's target.
    fn is_found_beside_its_log(&self) -> bool {
        match self.given.canonicalize() {
            Ok(now) if now == self.store => true,
            Ok(now) => {
                let log = FileId::at(&beside(&now, "-wal"));
                log.is_ok_and(|log| self.files.iter().any(|file| file.id == log))
            }
            Err(_) => false,
        }
    }
}

/// All paths that belong to the store at this path, which must be free of links.
pub(super) fn paths(store: &Path) -> Vec<PathBuf> {
    let mut paths = vec![store.to_owned()];
    paths.extend(["-wal", "-shm", "-journal"].map(|end| beside(store, end)));
    paths.push(LockFolder::beside(store).path().to_owned());
    paths
}

fn beside(store: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(store);
    name.push(end);
    PathBuf::from(name)
}
