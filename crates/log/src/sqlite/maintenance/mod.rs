//! Maintenance of a store: check, back-up, compaction and repair. Each operation runs on a dedicated thread with a
//! dedicated connection, so other processes can use the store meanwhile, except during a repair.

mod check;
mod copy;
mod readable;
mod repair;
mod stop;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use check::{Progress, StoreCheckReport, StoreProblem};
pub use copy::{BackupReport, CompactReport};
pub use repair::{CutStream, EndOfCut, RepairReport};
pub use stop::MaintenanceStop;

use super::classify::io_error;
use super::thread;
use crate::{LogError, LogErrorKind};

/// Maintenance of the store in one file.
#[derive(Debug, Clone)]
pub struct StoreMaintenance {
    path: Arc<Path>,
    stop: MaintenanceStop,
}

impl StoreMaintenance {
    /// Maintenance of the store at this path. Does not open the store.
    ///
    /// # Errors
    /// Returns an error if the file does not exist.
    pub fn of(path: impl AsRef<Path>) -> Result<Self, LogError> {
        let path = path.as_ref();
        let path = path.canonicalize().map_err(|error| io_error(path, error))?;
        Ok(Self {
            path: path.into(),
            stop: MaintenanceStop::default(),
        })
    }

    /// Lets `stop` stop the operations of this value.
    #[must_use]
    pub fn stopped_by(self, stop: &MaintenanceStop) -> Self {
        let stop = stop.clone();
        Self { stop, ..self }
    }

    /// Reads the whole store, and returns the problems. Changes nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the check continues on its thread.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or is not a store.
    pub async fn check(&self, progress: Progress) -> Result<StoreCheckReport, LogError> {
        self.run("allstop-check", move |path, stop| {
            check::check(path, stop, progress)
        })
        .await
    }

    /// Writes a copy of the store to this path, while other processes use the store. The copy contains all records that
    /// were confirmed before the call, and no removed text. Then checks the copy.
    ///
    /// # Cancel safety
    /// If the future is dropped, the copy is still completed.
    ///
    /// # Errors
    /// Returns an error if a file exists at this path, or the copy cannot be written. No part of a copy stays.
    pub async fn back_up(&self, to: &Path, progress: Progress) -> Result<BackupReport, LogError> {
        let to = to.to_owned();
        self.run("allstop-backup", move |path, stop| {
            copy::back_up(path, stop, &to, progress)
        })
        .await
    }

    /// Rewrites the store without the space and the text of removed records.
    ///
    /// # Cancel safety
    /// If the future is dropped, the compaction continues on its thread.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written. The store is then unchanged.
    pub async fn compact(&self) -> Result<CompactReport, LogError> {
        self.run("allstop-compact", copy::compact).await
    }

    /// Keeps a copy of the damaged files, and rewrites the store with all readable records. Each damaged stream is cut
    /// before its first damaged record, and `end` can add records to it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the repair continues on its thread.
    ///
    /// # Errors
    /// Returns an error if another process uses the store, or the repair cannot be written. If the repair was
    /// interrupted, the store refuses to open until another repair has completed.
    pub async fn repair(&self, end: EndOfCut) -> Result<RepairReport, LogError> {
        self.run("allstop-repair", move |path, stop| {
            repair::repair(path, stop, end)
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&Path, &MaintenanceStop) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let (reply, answer) = oneshot::channel();
        let (path, stop) = (Arc::clone(&self.path), self.stop.clone());
        // If the caller no longer waits, the answer is dropped.
        thread::start(name, move || drop(reply.send(job(&path, &stop))))
            .map_err(|error| io_error(&self.path, error))?;
        let closed = |_| LogError::new(LogErrorKind::Closed, self.path.display().to_string());
        answer.await.unwrap_or_else(|ended| Err(closed(ended)))
    }
}
