//! Budget for the output files of a store: one limit for each session, and one for all sessions.
//!
//! Several processes use one store, and each process can end at any moment. So the file system is the only truth about
//! the used space. Invariants:
//! 1. An output claims the bytes before it writes them.
//! 2. The files are listed again before a claim is refused, before a file is removed, and after this process has
//!    written one step. A step is an eighth of the remaining space, so eight processes that write at the same time do
//!    not exceed the limit. Close to the limit a step has a minimum size, so each process exceeds the limit by at most
//!    this size.

mod decision;
mod limits;
mod removal;
mod stored_file;
mod usage;

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::disk_limit::DiskLimit;
use decision::{DiskClaim, make_room};
pub use limits::OutputBudgetLimits;
use limits::step_min;
use stored_file::StoredFile;
use usage::DiskUsage;

/// The budget of one store. The sessions of a process share one value.
#[derive(Debug)]
pub struct OutputBudget {
    /// Folder with one subfolder for each session.
    root: PathBuf,
    limits: OutputBudgetLimits,
    /// The lock is held while the files are listed, so one thread lists them for all writers. Readers do not need it.
    known: Mutex<Option<KnownUsage>>,
}

/// Usage at the last listing, plus the claims of this process since then.
#[derive(Debug)]
struct KnownUsage {
    usage: DiskUsage,
    /// Bytes that this process may still claim before the next listing.
    step_left: u64,
}

impl OutputBudget {
    /// Creates the budget of the sessions whose output folders are directly below `root`.
    pub fn new(root: impl Into<PathBuf>, limits: OutputBudgetLimits) -> Self {
        Self {
            root: root.into(),
            limits,
            known: Mutex::default(),
        }
    }

    /// Claims bytes for a file in this folder. Returns the number of bytes that may be written, and the limit if it is
    /// less than the claim. May remove files and wait for a slow disk.
    pub(super) fn claim(&self, folder: &Path, bytes: u64) -> (u64, Option<DiskLimit>) {
        let mut known = self.known.lock();
        if let Some(known) = &mut *known
            && bytes <= known.step_left
            && bytes <= known.usage.room(folder, self.limits).0
        {
            known.usage.grow(folder, bytes);
            known.step_left -= bytes;
            return (bytes, None);
        }
        let files = StoredFile::all_below(&self.root);
        let mut usage = DiskUsage::of_files(&files);
        let claim = DiskClaim { folder, bytes };
        make_room(&files, &mut usage, self.limits, claim, removal::remove);
        let (room, limit) = usage.room(folder, self.limits);
        let granted = bytes.min(room);
        usage.grow(folder, granted);
        let step_min = step_min(DiskLimit::Store(self.limits.store_bytes_max));
        let step_left = (usage.room_of_all(self.limits) / 8).max(step_min);
        *known = Some(KnownUsage { usage, step_left });
        (granted, (granted < bytes).then_some(limit))
    }
}
