//! The files of an open store, and whether their paths still name them.
//!
//! SQLite holds its files open and goes on writing them after somebody has moved, removed or replaced them: a commit
//! then returns, and nobody will ever read it. So the paths are looked at around each commit and before each read.
//!
//! Not noticed: bytes that somebody writes into the store's own files. SQLite finds some of that when it reads them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::classify::io_error;
use super::lock_folder::LockFolder;
use crate::{LogError, LogErrorKind};

/// The first bytes of a write-ahead log, except for the last bit, which says how its checksums are written (the SQLite
/// file format, 4.1).
const WAL_MAGIC: u32 = 0x377f_0682;

/// The files of a store that one connection holds open.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// Where the store is, without symbolic links: SQLite names the files beside it after this path.
    store: PathBuf,
    files: Vec<(PathBuf, FileId)>,
    wal: File,
}

/// Device and inode. The connection holds its files open, so their inodes are not used for others meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    /// The file that the path leads to, through links: a link that leads elsewhere by now is a moved store, too.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self(found.dev(), found.ino()))
    }
}

impl OpenFiles {
    /// The files of the store at this path, which a connection has open and has read.
    pub(super) fn of(path: &Path) -> Result<Self, LogError> {
        let failed = |error| io_error(path, error);
        let store = path.canonicalize().map_err(failed)?;
        let wal = beside(&store, "-wal");
        let mut files = Vec::new();
        // By the path that was given, which is where the store will be looked for again.
        for file in [path.to_owned(), wal.clone(), beside(&store, "-shm")] {
            let id = FileId::at(&file).map_err(failed)?;
            files.push((file, id));
        }
        let wal = File::open(wal).map_err(failed)?;
        Ok(Self { store, files, wal })
    }

    /// The path of the store, without symbolic links.
    pub(super) fn store(&self) -> &Path {
        &self.store
    }

    /// Fails if a path no longer names the file that is open.
    pub(super) fn check(&self) -> Result<(), LogError> {
        for (path, id) in &self.files {
            match FileId::at(path) {
                Ok(found) if found == *id => {}
                Err(error)
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Err(io_error(path, error));
                }
                Ok(_) | Err(_) => return Err(replaced(path)),
            }
        }
        Ok(())
    }

    /// The same after a commit, which has to lie behind the header of the write-ahead log: where somebody has emptied
    /// that file, SQLite still writes on at its old end.
    pub(super) fn check_written(&self) -> Result<(), LogError> {
        self.check()?;
        let mut magic = [0; 4];
        match self.wal.read_exact_at(&mut magic, 0) {
            Ok(()) if u32::from_be_bytes(magic) & !1 == WAL_MAGIC => Ok(()),
            Ok(()) => Err(replaced(&beside(&self.store, "-wal"))),
            // Empty: the commit had nothing to write.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(io_error(&beside(&self.store, "-wal"), error)),
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

fn replaced(path: &Path) -> LogError {
    LogError::new(LogErrorKind::Replaced, path.display().to_string())
}
