//! The stop of a maintenance operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

/// Number of instructions of SQLite between two looks: far less than a millisecond.
const INSTRUCTIONS: i32 = 1_000;

/// Stops the operations of a [`StoreMaintenance`](super::StoreMaintenance). A stopped operation undoes its changes and
/// fails with [`LogErrorKind::Stopped`](crate::LogErrorKind::Stopped). An operation that is complete stays complete.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceStop(Arc<AtomicBool>);

impl MaintenanceStop {
    /// Stops the present operation and all later ones. Does not wait.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True after a stop.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the statements of this connection fail after a stop.
    pub(super) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let stop = self.clone();
        connection.progress_handler(INSTRUCTIONS, Some(move || stop.is_stopped()))
    }
}
