//! The files of an open store, and whether their paths still name them.
//!
//! SQLite holds its files open and goes on writing them after somebody has moved, removed or replaced them: a commit
//! then returns, and nobody will ever read it. So the paths are looked at around each commit and before each read.
//!
//! Not noticed: bytes that somebody writes into the store's own files. SQLite finds some of that when it reads them.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::classify::io_error;
use super::lock_folder::LockFolder;
use crate::{LogError, LogErrorKind};

/// The files of a store that one connection holds open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// Path of the store as it was given.
    given: PathBuf,
    /// Path of the store, without symbolic links: SQLite names the files beside it after this path.
    store: PathBuf,
    files: Vec<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    id: FileId,
    /// The length when it was looked at last.
    len: Cell<u64>,
}

/// Device and inode. The connection holds its files open, so their inodes are not used for others meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file that the path leads to, through links: a link that leads elsewhere by now is a moved store, too.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        look_at(path).map(|(id, _)| id)
    }
}

/// The file and its length, and no more: whoever asks for the time of a file's last change makes the next sync write
/// that time, too, which made commits a third slower (Linux 6.13 and later).
#[cfg(target_os = "linux")]
fn look_at(path: &Path) -> io::Result<(FileId, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

    let wanted = StatxFlags::INO | StatxFlags::SIZE;
    let found = statx(CWD, path, AtFlags::empty(), wanted)?;
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok((FileId(device, found.stx_ino), found.stx_size))
}

/// The file and its length.
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

    /// True if it is still at its path, and whole: none of the files gets shorter while a store is open, unless somebody
    /// empties it, or has another tool of SQLite shorten it.
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
    /// The files of the store at this path, which a connection has open and has read.
    pub(super) fn of(path: &Path) -> Result<Self, LogError> {
        let store = path.canonicalize().map_err(|error| io_error(path, error))?;
        // By the path that was given, which is where the store will be looked for again.
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

    /// Fails if a path no longer names the file that is open, or if that has become shorter.
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

    /// True if whoever opens the store next finds the write-ahead log that is written here. A link in the place of the
    /// moved store leads to the same file, and to another log beside it.
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

/// All paths that belong to the store at this path, which is free of links.
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
