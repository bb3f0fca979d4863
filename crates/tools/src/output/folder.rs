//! The folder that output goes to which is too long for memory.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder for output files. Whoever owns the session removes it; what is in it is meant to outlive the call, since
/// the model is told where to look.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    next: AtomicU64,
}

impl OutputFolder {
    /// In this folder, which is made when the first file is.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            next: AtomicU64::new(1),
        }
    }

    /// Where.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new file, for its owner's eyes only: output may hold secrets.
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
                // Left by a process that had our pid.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}
