//! The logs under test.

use allstop_log::{Log, MemoryLog, SqliteLog};

/// A log under test: two handles for the same streams, and a way to open them again.
pub(super) trait Opened {
    fn handle(&self, which: usize) -> &dyn Log;
    async fn reopen(&mut self);
}

pub(super) struct InMemory([MemoryLog; 2]);

impl InMemory {
    pub(super) fn new() -> Self {
        let log = MemoryLog::new();
        Self([log.clone(), log])
    }
}

impl Opened for InMemory {
    fn handle(&self, which: usize) -> &dyn Log {
        &self.0[which]
    }
    /// A log in memory exists only as long as its value, so there is nothing to open again.
    async fn reopen(&mut self) {}
}

pub(super) struct OnDisk {
    folder: tempfile::TempDir,
    /// Two connections to the same file, as two processes would have.
    logs: [SqliteLog; 2],
}

impl OnDisk {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let logs = Self::open(&folder).await;
        Self { folder, logs }
    }

    async fn open(folder: &tempfile::TempDir) -> [SqliteLog; 2] {
        let open = || SqliteLog::open(folder.path().join("store.db"));
        [open().await.unwrap(), open().await.unwrap()]
    }
}

impl Opened for OnDisk {
    fn handle(&self, which: usize) -> &dyn Log {
        &self.logs[which]
    }

    async fn reopen(&mut self) {
        for log in &self.logs {
            log.close().await;
        }
        self.logs = Self::open(&self.folder).await;
    }
}
