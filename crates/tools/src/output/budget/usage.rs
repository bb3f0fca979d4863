//! Disk usage of the output files, by session.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::limits::OutputBudgetLimits;
use super::stored_file::StoredFile;
use crate::output::disk_limit::DiskLimit;

/// Number of bytes in the output files of each session, and of all sessions.
#[derive(Debug, Default)]
pub(super) struct DiskUsage {
    all: u64,
    by_folder: HashMap<PathBuf, u64>,
}

impl DiskUsage {
    pub(super) fn of_files(files: &[StoredFile]) -> Self {
        let mut usage = Self::default();
        for file in files {
            usage.grow(&file.folder, file.bytes);
        }
        usage
    }

    pub(super) fn grow(&mut self, folder: &Path, bytes: u64) {
        self.all = self.all.saturating_add(bytes);
        match self.by_folder.get_mut(folder) {
            Some(used) => *used = used.saturating_add(bytes),
            None => drop(self.by_folder.insert(folder.to_owned(), bytes)),
        }
    }

    pub(super) fn shrink(&mut self, folder: &Path, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        if let Some(used) = self.by_folder.get_mut(folder) {
            *used = used.saturating_sub(bytes);
        }
    }

    /// Bytes that all sessions together may still write.
    pub(super) fn room_of_all(&self, limits: OutputBudgetLimits) -> u64 {
        limits.store_bytes_max.saturating_sub(self.all)
    }

    /// Bytes that the session with this folder may still write, and the limit that applies to more bytes.
    pub(super) fn room(&self, folder: &Path, limits: OutputBudgetLimits) -> (u64, DiskLimit) {
        let used = self.by_folder.get(folder).copied().unwrap_or(0);
        let of_session = limits.session_bytes_max.saturating_sub(used);
        let of_all = self.room_of_all(limits);
        if of_session <= of_all {
            (of_session, DiskLimit::Session(limits.session_bytes_max))
        } else {
            (of_all, DiskLimit::Store(limits.store_bytes_max))
        }
    }
}
