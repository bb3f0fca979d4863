//! Refuses a store that has a second path: a hard link, or a mount of only the file.
//!
//! SQLite and the locks use files next to the path of the store. A process with another path to the same store uses other
//! files, so each process does not see the records of the other, and together they damage the store.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::park_timeout;
use std::time::Duration;

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use super::classify::io_error;
use super::files::beside;
use super::new_store;
use crate::{LogError, LogErrorKind};

/// Bytes of the store that each connection in use holds locked (SQLite, `os_unix.c`: `SHARED_FIRST`, `SHARED_SIZE`).
const STORE_IN_USE: (u64, u64) = (0x4000_0002, 510);
/// Byte of the index of the write-ahead log that each connection holds locked (SQLite, `os_unix.c`: `UNIX_SHM_DMS`).
const INDEX_IN_USE: (u64, u64) = (128, 1);

/// Number of checks that must agree. A process that is opening the store takes the two locks one after the other.
const CHECKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Returns an error if the store has a second hard link, or if a process uses the store through another path. This process
/// must not have the store open.
pub(super) fn check(store: &Path) -> Result<(), LogError> {
    let Ok(store) = store.canonicalize() else {
        return Ok(());
    };
    // SQLite reports a path that is no file.
    if !store.is_file() {
        return Ok(());
    }
    let refused = |why: &str| {
        let place = format!("{} ({why})", store.display());
        Err(LogError::new(LogErrorKind::OtherPath, place))
    };
    let has_links = || fs::metadata(&store).map(|found| found.nlink() > 1);
    let failed = |error| io_error(&store, error);
    if has_links().map_err(failed)? {
        // A process that was killed while it created the store has left its temporary link.
        new_store::remove_left_links(&store);
        if has_links().map_err(failed)? {
            return refused("a hard link");
        }
    }
    if is_mount(&store) {
        return refused("a mount of only this file: mount its folder instead");
    }
    for _ in 0..CHECKS {
        if !is_used_through_other_path(&store).map_err(failed)? {
            return Ok(());
        }
        park_timeout(PAUSE);
    }
    refused("another process uses it through another path")
}

/// True if the file itself is a mount point: it has another path, with other files next to it.
#[cfg(target_os = "linux")]
fn is_mount(store: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        is_known.then_some(found.stx_mnt_id)
    };
    let folder = store.parent().and_then(mount);
    folder.is_some() && folder != mount(store)
}

#[cfg(not(target_os = "linux"))]
fn is_mount(_store: &Path) -> bool {
    false
}

fn is_used_through_other_path(store: &Path) -> io::Result<bool> {
    Ok(is_locked(store, STORE_IN_USE)? && !is_locked(&beside(store, "-shm"), INDEX_IN_USE)?)
}

/// True if another process has locked these bytes of the file.
fn is_locked(path: &Path, (start, length): (u64, u64)) -> io::Result<bool> {
    let file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let wanted = Flock {
        start,
        length,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    Ok(fcntl_getlk(file.as_fd(), &wanted)?.is_some())
}
