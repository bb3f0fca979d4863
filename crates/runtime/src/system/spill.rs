//! The folder of a session's long output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::cleanup::CleanupThreads;

/// Age from which an empty folder counts as left.
const LEFT_AFTER: Duration = Duration::from_hours(24);

/// Maximum number of folders that the end of one session looks at.
const LEFT_FOLDERS_MAX: usize = 64;

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
        self.cleanup.begin("removing empty folders", move || {
            // Has no effect on a folder that contains output.
            drop(std::fs::remove_dir(&path));
            if let Some(all) = path.parent() {
                remove_left_folders(all, SystemTime::now());
            }
        });
    }
}

/// Removes empty folders that killed processes have left. A younger folder may belong to a running session.
fn remove_left_folders(all: &Path, now: SystemTime) {
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
    for entry in entries.take(LEFT_FOLDERS_MAX) {
        let modified = entry.metadata().and_then(|found| found.modified()).ok();
        let age = modified.and_then(|modified| now.duration_since(modified).ok());
        if age.is_some_and(|age| age > LEFT_AFTER) {
            drop(std::fs::remove_dir(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_empty_folders_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let (empty, full) = (folder("empty"), folder("full"));
        std::fs::write(full.join("output-1-1.txt"), "text").unwrap();
        remove_left_folders(place.path(), SystemTime::now());
        assert!(empty.exists(), "it may be in use");
        remove_left_folders(place.path(), SystemTime::now() + 2 * LEFT_AFTER);
        assert!(!empty.exists() && full.exists());
    }
}
