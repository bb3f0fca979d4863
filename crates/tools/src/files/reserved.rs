//! Files that no file tool touches, although they lie in a folder that it may use: those of the store of the sessions.
//!
//! A write into the store would change what other sessions said, a replaced store would lose it, and whoever reads it
//! reads all of them. The paths are looked up once for each call; what is then opened is compared by device and inode,
//! so that a hard link is no way round, and by its name in its folder, so that a file which is not there yet is not
//! made either.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{self, Stat};
use rustix::io::Errno;

/// Device and inode.
type FileId = (u64, u64);

/// The reserved files, as one call finds them.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    files: Vec<FileId>,
    /// Names in folders.
    names: Vec<(FileId, OsString)>,
}

impl Reserved {
    /// Looks the paths up. One that is not there is reserved by its name alone.
    pub(super) fn look_up(paths: &[PathBuf]) -> Self {
        let files = paths.iter().filter_map(|path| fs::stat(path).ok());
        let names = paths.iter().filter_map(|path| {
            let folder = fs::stat(path.parent()?).ok()?;
            Some((id_of(&folder), path.file_name()?.to_owned()))
        });
        Self {
            files: files.map(|stat| id_of(&stat)).collect(),
            names: names.collect(),
        }
    }

    /// True if this is one of the files or folders.
    pub(super) fn has(&self, stat: &Stat) -> bool {
        self.files.contains(&id_of(stat))
    }

    /// True if the folder is one of them.
    pub(super) fn has_folder(&self, folder: &OwnedFd) -> Result<bool, Errno> {
        Ok(!self.files.is_empty() && self.has(&fs::fstat(folder)?))
    }

    /// True if this name in the folder is one of theirs, be it there or not.
    pub(super) fn has_name(&self, folder: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        let mut alike = self.names.iter().filter(|(_, reserved)| reserved == name);
        if alike.clone().next().is_none() {
            return Ok(false);
        }
        let folder = id_of(&fs::fstat(folder)?);
        Ok(alike.any(|(reserved, _)| *reserved == folder))
    }
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "the types of the fields differ between systems"
)]
fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}
