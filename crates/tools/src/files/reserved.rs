//! Files that no file tool touches, although they are in an allowed folder: the store of the sessions.
//!
//! A write to the store could change or lose other sessions, and a read would expose these sessions. The paths are
//! looked up once per tool call. An opened file is compared by device and inode, so that a hard link does not bypass
//! the check. The name of the file in its folder is also compared, so that a missing reserved file cannot be created.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Stat};
use rustix::io::Errno;

/// Device and inode, which together identify a file.
type FileId = (u64, u64);

/// The reserved files at the time of one call.
#[derive(Debug, Default)]
pub(crate) struct ReservedFiles {
    files: Vec<FileId>,
    /// Reserved names, each with the folder that contains it.
    names: Vec<(FileId, OsString)>,
}

impl ReservedFiles {
    /// Looks up the paths. If a file is missing, only its name is reserved. If its folder is missing too, the name of
    /// the first missing folder is reserved, because a caller that creates this folder could put the file into the
    /// folder.
    pub(super) fn look_up(paths: &[PathBuf]) -> Self {
        let files = paths.iter().filter_map(|path| fs::stat(path).ok());
        let names = paths.iter().filter_map(|path| reserved_name(path));
        Self {
            files: files.map(|stat| id_of(&stat)).collect(),
            names: names.collect(),
        }
    }

    /// True if this is a reserved file or folder.
    pub(super) fn has(&self, stat: &Stat) -> bool {
        self.files.contains(&id_of(stat))
    }

    pub(super) fn has_folder(&self, folder: &OwnedFd) -> Result<bool, Errno> {
        Ok(!self.files.is_empty() && self.has(&fs::fstat(folder)?))
    }

    /// True if this name in the folder is reserved, even if the file does not exist.
    pub(super) fn has_name(&self, folder: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        let mut alike = self.names.iter().filter(|(_, reserved)| reserved == name);
        if alike.clone().next().is_none() {
            return Ok(false);
        }
        let folder = id_of(&fs::fstat(folder)?);
        Ok(alike.any(|(reserved, _)| *reserved == folder))
    }
}

/// Returns the nearest existing folder of a path, and the name in this folder that leads to the path.
fn reserved_name(path: &Path) -> Option<(FileId, OsString)> {
    path.ancestors().find_map(|path| {
        let folder = fs::stat(path.parent()?).ok()?;
        Some((id_of(&folder), path.file_name()?.to_owned()))
    })
}

#[allow(
    clippy::useless_conversion,
    clippy::unnecessary_cast,
    reason = "the types of the fields differ between systems"
)]
fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}
