//! Folder for output that is too long for memory.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::budget::OutputBudget;
use super::disk_limit::DiskLimit;
use super::file_identity::{NAME_BEGINNING, is_at};

/// Maximum number of new files that other processes remove before this process locks them. A removal takes a file only
/// if it is the oldest one, so even one such file is rare.
const LOST_FILES_MAX: u32 = 100;

/// A folder for output files. The folder is removed by the caller, not by this type. The files stay after the end of
/// their tool call, because the model receives their paths. With a budget, old files are removed for new output.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    next: AtomicU64,
    budget: Option<Arc<OutputBudget>>,
}

impl OutputFolder {
    /// Uses this folder, which is created with the first file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            next: AtomicU64::new(1),
            budget: None,
        }
    }

    /// Limits the files by a budget. The folder must be directly below the folder of the budget.
    #[must_use]
    pub fn within(mut self, budget: Arc<OutputBudget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Claims bytes for a file of this folder. Returns the number of bytes that may be written, and the limit if it is
    /// less than the claim.
    pub(super) fn claim(&self, bytes: u64) -> (u64, Option<DiskLimit>) {
        match &self.budget {
            Some(budget) if bytes > 0 => budget.claim(&self.path, bytes),
            _ => (bytes, None),
        }
    }

    /// Creates a private file, because output may contain secrets. The file has a shared lock: until it is closed, no
    /// process removes it to free space.
    pub(super) fn create(&self) -> io::Result<(File, PathBuf)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        let mut lost = 0;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self.path.join(format!(
                "{NAME_BEGINNING}{}-{number}.txt",
                std::process::id()
            ));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                // The file is not used if another process removes it before it is locked.
                Ok(file) if lock(&file) && is_at(&file, &path) => return Ok((file, path)),
                Ok(_) if lost < LOST_FILES_MAX => lost += 1,
                Ok(_) => return Err(io::ErrorKind::ResourceBusy.into()),
                // The existing file was left by an earlier process with the same pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Locks a new file. False if another process has the exclusive lock, because it removes the file. On a file system
/// without locks no file is ever removed, so none is needed.
fn lock(file: &File) -> bool {
    !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
