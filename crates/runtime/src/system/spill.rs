//! The folder of a session's long output.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use allstop_core::SessionId;

use super::cleanup::CleanupThreads;

/// Age from which an empty folder counts as left.
const LEFT_AFTER: Duration = Duration::from_hours(24);

/// Maximum number of folders that the end of one session looks at.
const LEFT_FOLDERS_MAX: usize = 64;

/// Path of the folder with the long output of a session. Ids come from clients and imported files, so an id that is no
/// plain file name is encoded: the path is always directly in `outputs`.
pub(crate) fn output_folder(outputs: &Path, id: &SessionId) -> PathBuf {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let id = id.as_str();
    let is_name = !id.is_empty() && !id.starts_with('.') && !id.contains(['/', '%', '\0']);
    if is_name {
        return outputs.join(id);
    }
    let encoded = |byte: u8| {
        if is_plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    };
    let name: String = id.bytes().map(encoded).collect();
    outputs.join(format!("%{name}"))
}

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
    use std::collections::HashSet;

    use super::*;

    /// Regression: the removal of the session `../../x` removed a folder of the user.
    #[test]
    fn each_id_has_a_folder_of_its_own_directly_in_the_folder_of_all() {
        let outputs = Path::new("/store.db.output");
        let ids = [
            "01J", "a.b", "é", ".", "..", "", "/", "/etc", "../../x", "a/b", "a%2fb", "%a%2fb",
            "\0",
        ];
        let folders: HashSet<_> = ids
            .iter()
            .map(|id| output_folder(outputs, &SessionId::from(*id)))
            .collect();
        assert_eq!(folders.len(), ids.len(), "{folders:?}");
        for folder in &folders {
            assert_eq!(folder.parent(), Some(outputs), "{folder:?}");
            assert!(!folder.ends_with("..") && !folder.to_string_lossy().contains('\0'));
        }
        assert!(folders.contains(Path::new("/store.db.output/01J")));
    }

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
