//! Locks of a store: files in a folder next to the store, one file for each stream in use.
//!
//! A process takes a lock by locking the file. When the process ends in any way, the kernel releases the file lock, so
//! a file that remains locks nothing. The file contains the identity of the owner, the process that holds the lock.
//!
//! Invariants:
//! 1. Only the process that holds the lock on a file writes or removes the file.
//! 2. An empty folder is not removed. So if the folder is missing, either no lock was ever taken, or a user has deleted
//!    the folder. An owner does not notice the deletion of its file. Therefore the process that creates the folder also
//!    checks whether the process that a session's records name as owner is alive. If two processes nevertheless write
//!    to one session, no record is overwritten: each append names the version that it expects, and of two such appends
//!    one is refused.
//! 3. A lock counts only if the locked file is still at its path. The previous owner may have removed the file before
//!    the lock was taken, so the file is compared with the path after locking.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::park_timeout;
use std::time::Duration;

use allstop_core::process::ProcessIdentity;
use allstop_process::this_process;
use rustix::fs::OFlags;

use super::classify::io_error;
use crate::{LogError, LogErrorKind, StreamName};

/// Maximum number of attempts to take or inspect a lock that is busy for a moment. A lock is busy while another process
/// reads the owner or removes the file, and this takes microseconds.
const TRIES_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

const FOLDER_MODE: u32 = 0o700;

/// Number of files of killed processes that may stay.
const LEFT_FILES_MAX: usize = 16;

/// The folder `<store>.locks`.
#[derive(Debug)]
pub(super) struct LockFolder(PathBuf);

#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    /// Closing the file releases the lock.
    file: File,
    is_first: bool,
}

#[derive(Debug)]
pub(super) enum FileLockAttempt {
    Locked(FileLock),
    HeldBy(Option<ProcessIdentity>),
}

impl LockFolder {
    /// Locks of the store at this path. The folder is created when the first lock is taken.
    pub(super) fn beside(store: &Path) -> Self {
        let mut name = store.as_os_str().to_owned();
        name.push(".locks");
        Self(PathBuf::from(name))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn try_lock(&self, stream: &StreamName) -> Result<FileLockAttempt, LogError> {
        let path = self.0.join(file_name(stream));
        let failed = |error| io_error(&path, error);
        let is_first = self.make().map_err(|error| io_error(&self.0, error))?;
        for _ in 0..TRIES_MAX {
            let file = open_or_create(&path).map_err(failed)?;
            if let Some(mut attempt) = lock_opened(file, &path).map_err(failed)? {
                if let FileLockAttempt::Locked(lock) = &mut attempt {
                    lock.is_first = is_first;
                }
                return Ok(attempt);
            }
            std::thread::yield_now();
        }
        Err(LogError::new(
            LogErrorKind::Busy,
            path.display().to_string(),
        ))
    }

    /// Creates the folder. Returns true if the folder was missing.
    fn make(&self) -> io::Result<bool> {
        match DirBuilder::new().mode(FOLDER_MODE).create(&self.0) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Another user who may write to the folder could replace a lock by a link to another file.
                let mode = fs::metadata(&self.0)?.permissions().mode();
                if mode & 0o077 != 0 {
                    fs::set_permissions(&self.0, Permissions::from_mode(FOLDER_MODE))?;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the files that killed processes have left. A few files stay, because each start would otherwise look for
    /// them. Failures are ignored: such a file locks nothing.
    pub(super) fn remove_left_files(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else {
            return;
        };
        let paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        if paths.len() <= LEFT_FILES_MAX {
            return;
        }
        for path in paths {
            let Ok(file) = open(&path) else { continue };
            if file.try_lock().is_ok() && is_at(&file, &path) {
                drop(fs::remove_file(&path));
            }
        }
    }

    /// True if a process holds a lock.
    pub(super) fn is_in_use(&self) -> io::Result<bool> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            entries => entries?,
        };
        for entry in entries {
            let file = match File::open(entry?.path()) {
                // The owner has released the lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            match file.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(true),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Owner of the lock; `None` if the lock is free. This function does not take the lock.
    pub(super) fn owner(&self, stream: &StreamName) -> Result<Option<ProcessIdentity>, LogError> {
        let path = self.0.join(file_name(stream));
        for _ in 0..TRIES_MAX {
            let mut file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(io_error(&path, error)),
            };
            match file.try_lock_shared() {
                Ok(()) => return Ok(None),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(io_error(&path, error)),
            }
            if let Some(owner) = read_owner(&mut file) {
                return Ok(Some(owner));
            }
            // The lock was just taken. In a moment, the owner will write its identity into the file.
            park_timeout(PAUSE);
        }
        Err(LogError::new(
            LogErrorKind::Busy,
            path.display().to_string(),
        ))
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    options().create(true).truncate(false).open(path)
}

fn open(path: &Path) -> io::Result<File> {
    options().open(path)
}

/// Options of a lock file. The file is private. A symbolic link is refused, because the owner writes to the file.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    options
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(no_follow);
    options
}

/// Locks a file that was opened at this path. `None` if the caller must open the path again.
fn lock_opened(mut file: File, path: &Path) -> io::Result<Option<FileLockAttempt>> {
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => {
            let mut lock = FileLock {
                path: path.to_owned(),
                file,
                is_first: false,
            };
            match lock.write_owner() {
                Ok(()) => Ok(Some(FileLockAttempt::Locked(lock))),
                Err(error) => {
                    lock.release();
                    Err(error)
                }
            }
        }
        // The last owner removed the file after this process had opened it. The next attempt creates a new file.
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => match file.try_lock_shared() {
            // Another process is only inspecting the lock, and this takes only a moment.
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                Ok(Some(FileLockAttempt::HeldBy(read_owner(&mut file))))
            }
            Err(TryLockError::Error(error)) => Err(error),
        },
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl FileLock {
    fn write_owner(&mut self) -> io::Result<()> {
        let owner = serde_json::to_vec(this_process()).expect("an identity is plain data");
        self.file.write_all(&owner)?;
        self.file.set_len(owner.len() as u64)
    }

    /// True if the folder of locks was created for this lock.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Removes the file and releases the lock. If this value is dropped instead, the lock is released, but the file
    /// remains.
    pub(super) fn release(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "a lock file was left behind; it locks nothing");
        }
    }
}

fn read_owner(file: &mut File) -> Option<ProcessIdentity> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// File name of a stream's lock. The file name does not contain the common prefix of all sessions, and special
/// characters are escaped.
fn file_name(stream: &StreamName) -> String {
    use std::fmt::Write as _;

    let mut name = String::new();
    for byte in stream
        .as_str()
        .strip_prefix(crate::session::STREAM_PREFIX)
        .unwrap_or(stream.as_str())
        .bytes()
    {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(byte.into()),
            _ => write!(name, "%{byte:02x}").expect("a string takes all text"),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last owner removes the lock file at a bad moment: the next owner has already opened the file, but has not
    /// yet locked it. If a lock on such a removed file counted, another process could lock a new file at the same path.
    #[test]
    fn file_removed_between_open_and_lock_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let locked = |file| match lock_opened(file, &path).unwrap() {
            Some(FileLockAttempt::Locked(lock)) => Some(lock),
            _ => None,
        };
        let last = locked(open_or_create(&path).unwrap()).expect("the lock is free");
        let opened_before = open_or_create(&path).unwrap();
        last.release();
        assert!(locked(opened_before).is_none(), "the file has no path");
        // If the path already leads to a newer file, a file that was opened before also locks nothing.
        let opened_before = open_or_create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let newer = locked(open_or_create(&path).unwrap()).expect("a new file");
        assert!(
            locked(opened_before).is_none(),
            "the path names another file"
        );
        newer.release();
    }

    #[test]
    fn file_names_are_escaped_and_distinct() {
        let name = |stream: &str| file_name(&StreamName::new(stream));
        assert_eq!(name("session/01JABC"), "01JABC");
        assert_eq!(name("session/../x"), "%2e%2e%2fx");
        assert_eq!(name("task/1"), "task%2f1");
        assert_eq!(name("session/task%2f1"), "task%252f1");
    }
}
