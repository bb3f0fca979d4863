//! Mark of an erasure that is not complete. The text of deleted records stays in the write-ahead log until the log is
//! written back. If the process is killed before that, the next process that opens the store writes the log back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::files::{ERASURE_MARK, beside};

/// File next to the store while the log may contain the text of deleted records.
#[derive(Debug)]
pub(super) struct ErasureMark {
    path: PathBuf,
    is_set: bool,
}

impl ErasureMark {
    /// Mark of the store at this path. The path must not contain symbolic links.
    pub(super) fn of(store: &Path) -> Self {
        let path = beside(store, ERASURE_MARK);
        let is_set = path.exists();
        Self { path, is_set }
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set
    }

    pub(super) fn set(&mut self) {
        self.is_set = true;
        if let Err(error) = File::create(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a kill may leave removed text in the store");
        }
    }

    /// Removes the mark: the log was written back.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_set) {
            // Another process may have removed it. A mark that stays only costs the next process a write-back.
            drop(fs::remove_file(&self.path));
        }
    }
}
