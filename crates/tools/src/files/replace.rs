//! Atomic replacement of a file's content: a temporary file in the same folder, then a rename.
//!
//! A reader sees the complete old content or the complete new content. This also holds after `kill -9`, which may leave
//! the temporary file, named `.allstop-…`. The mode of the file is kept. Hard links and extended attributes are lost.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, Access, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::FileError;
use super::workspace::LocatedPath;
use super::{StopCheck, open};
use crate::file_state::FileState;

/// Number of bytes between two checks for a stop, so that a large write stops soon.
const WRITE_CHUNK_BYTES: usize = 1 << 20;

/// Replaces or creates the file `name` in `folder`. `expected` is the state that the caller saw. If the file has
/// changed since then, returns an error and changes nothing.
pub(crate) fn replace(
    folder: &OwnedFd,
    name: &OsStr,
    content: &[u8],
    expected: Option<&Stat>,
    located: &LocatedPath,
    stop: &StopCheck,
) -> Result<(), FileError> {
    let shown = &located.shown;
    if expected.is_some() {
        // A rename ignores the write permission of the replaced file, so the permission is checked here.
        fs::accessat(folder, name, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(FileError::io("no permission to write", shown))?;
    }
    let io = |source| FileError::Io {
        action: "could not write",
        path: shown.clone(),
        source,
    };
    let mut temporary = TemporaryFile::create(folder, expected, shown)?;
    for chunk in content.chunks(WRITE_CHUNK_BYTES) {
        stop.check()?;
        temporary.file.write_all(chunk).map_err(io)?;
    }
    temporary.file.sync_data().map_err(io)?;
    let now = open::regular(folder, name, located)?;
    if FileState::of(expected) != FileState::of(now.as_ref()) {
        return Err(FileError::ChangedBeneath {
            path: shown.clone(),
        });
    }
    // Last check for a stop, because the rename cannot be undone.
    stop.check()?;
    temporary
        .rename_to(name)
        .map_err(FileError::io("could not write", shown))
}

/// A temporary file that is removed unless it is renamed.
struct TemporaryFile<'a> {
    folder: &'a OwnedFd,
    name: String,
    file: File,
    renamed: bool,
}

impl<'a> TemporaryFile<'a> {
    fn create(folder: &'a OwnedFd, like: Option<&Stat>, shown: &str) -> Result<Self, FileError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The file is private until it gets the mode of the old file.
        let mode = Mode::from_raw_mode(if like.is_some() { 0o600 } else { 0o666 });
        let error = FileError::io("could not create a temporary file next to", shown);
        let (name, fd) = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".allstop-{:x}-{number:x}.tmp", std::process::id());
            match fs::openat(folder, &name, flags, mode) {
                Ok(fd) => break (name, fd),
                // The existing file was left by an earlier process with the same pid.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(error(errno)),
            }
        };
        let temporary = Self {
            folder,
            name,
            file: File::from(fd),
            renamed: false,
        };
        if let Some(like) = like {
            temporary.copy_owner_and_mode(like).map_err(error)?;
        }
        Ok(temporary)
    }

    fn copy_owner_and_mode(&self, like: &Stat) -> Result<(), Errno> {
        let own = fs::fstat(&self.file)?;
        if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid) {
            // Only root can change the owner. If the change fails, the write continues without the set-uid and set-gid
            // bits, because these bits would grant the rights of the new owner.
            let owner = Some(fs::Uid::from_raw(like.st_uid));
            let group = Some(fs::Gid::from_raw(like.st_gid));
            if fs::fchown(self.file.as_fd(), owner, group).is_err() {
                return fs::fchmod(&self.file, Mode::from_raw_mode(like.st_mode & 0o777));
            }
        }
        fs::fchmod(&self.file, Mode::from_raw_mode(like.st_mode & 0o7777))
    }

    fn rename_to(mut self, name: &OsStr) -> Result<(), Errno> {
        fs::renameat(self.folder, &self.name, self.folder, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if !self.renamed
            && let Err(error) = fs::unlinkat(self.folder, &self.name, AtFlags::empty())
        {
            tracing::warn!(name = self.name, %error, "a temporary file could not be removed");
        }
    }
}
