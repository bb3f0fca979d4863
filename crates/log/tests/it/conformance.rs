//! Runs the conformance checks for each kind of log.

use allstop_log::{MemoryLog, SqliteLog, log_conformance};

log_conformance!(memory, async { (MemoryLog::new(), ()) });

log_conformance!(sqlite, async {
    let folder = tempfile::tempdir().unwrap();
    (
        SqliteLog::open(folder.path().join("store.db"))
            .await
            .unwrap(),
        folder,
    )
});
