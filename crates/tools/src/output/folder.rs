//! Folder for output that is too long for memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder for output files. The folder is removed by the caller, not by this type. The files stay after the end of
/// their tool call, because the model receives their paths.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    next: AtomicU64,
}

impl OutputFolder {
    /// Uses this folder, which is created with the first file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            next: AtomicU64::new(1),
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a private file, because output may contain secrets.
    pub(super) fn create(&self) -> io::Result<(File, PathBuf)> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)?;
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let path = self
                .path
                .join(format!("output-{}-{number}.txt", std::process::id()));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(file) => return Ok((file, path)),
                // The existing file was left by an earlier process with the same pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}
