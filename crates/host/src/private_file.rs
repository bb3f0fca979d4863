//! Files that only their user may read, and that several processes change.

use std::fs::{self, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// Maximum wait for the change of another process. A change takes milliseconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Lock of the folder of a file. The lock ends when the value is dropped.
#[derive(Debug)]
#[must_use]
pub struct FolderLock(#[expect(dead_code, reason = "the open file holds the lock")] fs::File);

impl FolderLock {
    /// Locks the folder of a file, because another file replaces the file itself. Creates the folder. Blocks the thread for
    /// at most two seconds.
    ///
    /// # Errors
    /// If the folder cannot be created, if the file system has no locks, or if another process holds the lock.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        make_private(folder)?;
        let folder = fs::File::open(folder)?;
        let started = Instant::now();
        loop {
            match folder.try_lock() {
                Ok(()) => return Ok(Self(folder)),
                // The wait is limited, because a user may hold this lock for longer.
                Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_WAIT_MAX => {
                    park_timeout(LOCK_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)
}

/// Replaces a file atomically: a reader sees either the old content or the new one. A new file is readable only by its user,
/// and a replaced file keeps its permissions. If the path is a symbolic link, for example into a dotfiles repository, the
/// link stays and its target is replaced. Blocks the thread.
///
/// # Errors
/// If the file or its folder cannot be written.
pub fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let path: PathBuf = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    make_private(path.parent().unwrap_or(Path::new(".")))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = write_new(&path, &new, text);
    if written.is_err() {
        drop(fs::remove_file(&new));
    }
    written
}

fn write_new(path: &Path, new: &Path, text: &str) -> io::Result<()> {
    // Only the user may read the file: the headers of an MCP server may contain API keys.
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    if let Ok(before) = fs::metadata(path) {
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()?;
    fs::rename(new, path)
}
