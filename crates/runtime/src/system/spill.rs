//! The folder of a session's long output.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cleanup::CleanupThreads;

/// The folder of a session's long output. Dropping this value removes the folder if the folder is empty.
#[derive(Debug)]
pub(super) struct SpillFolder {
    path: PathBuf,
    cleanup: Arc<CleanupThreads>,
}

impl SpillFolder {
    /// Creates the folder. If the creation fails, long output is truncated, with a note. May wait for a slow disk.
    pub(super) fn make(path: PathBuf, cleanup: Arc<CleanupThreads>) -> Self {
        if let Err(error) = super::open::make_folder(&path) {
            tracing::warn!(path = %path.display(), %error, "no folder for long output");
        }
        Self { path, cleanup }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        self.cleanup.begin("removing an empty folder", move || {
            // Has no effect on a folder that contains output.
            drop(std::fs::remove_dir(&path));
        });
    }
}
