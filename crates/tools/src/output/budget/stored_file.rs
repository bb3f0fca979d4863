//! The output files in the folder of the store.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Unit in which the size of a file is counted: the block size of common file systems. Each file has at least one
/// block, so that very many small files also reach the limit.
pub(super) const BLOCK_BYTES: u64 = 4 * 1024;

/// A file in the folder of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredFile {
    /// Folder of the session.
    pub(super) folder: Arc<Path>,
    pub(super) path: PathBuf,
    /// Size on disk: a multiple of [`BLOCK_BYTES`].
    pub(super) bytes: u64,
    /// Time of the last write.
    pub(super) modified: SystemTime,
}

impl StoredFile {
    /// Lists the files of all sessions. Files and folders that cannot be read are left out, because another process may
    /// just have removed them.
    pub(super) fn all_below(root: &Path) -> Vec<Self> {
        let mut files = Vec::new();
        for session in entries(root) {
            if !session.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let folder: Arc<Path> = session.path().into();
            files.extend(entries(&folder).filter_map(|entry| Self::of_entry(&folder, &entry)));
        }
        files
    }

    fn of_entry(folder: &Arc<Path>, entry: &DirEntry) -> Option<Self> {
        let metadata = entry.metadata().ok()?;
        metadata.is_file().then(|| Self {
            folder: Arc::clone(folder),
            path: entry.path(),
            bytes: on_disk(metadata.len()),
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        })
    }

    /// True if a note in place of the file would need as much space as the file.
    pub(super) fn is_small(&self) -> bool {
        self.bytes <= BLOCK_BYTES
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_sessions_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let session = root.path().join("session");
        fs::create_dir_all(session.join("folder")).unwrap();
        fs::write(root.path().join("beside"), [0; 10_000]).unwrap();
        fs::write(session.join("long"), [0; 4_097]).unwrap();
        fs::write(session.join("empty"), "").unwrap();
        std::os::unix::fs::symlink(session.join("long"), session.join("link")).unwrap();
        let mut files = StoredFile::all_below(root.path());
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let found = files.iter().map(|file| (file.path.clone(), file.bytes));
        let expected = [
            (session.join("empty"), BLOCK_BYTES),
            (session.join("long"), 2 * BLOCK_BYTES),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(StoredFile::all_below(&root.path().join("missing")), []);
    }
}
