//! A log whose appends fail and whose reads wait on demand.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allstop_log::{
    AppendError, AppendId, AppendIds, Log, LogError, LogErrorKind, LogFuture, LogWrapper,
    MemoryLog, RecordBytes, StreamName, Version,
};
use tokio::sync::watch;

/// Clones share the records and the faults.
#[derive(Debug, Clone)]
pub(crate) struct GatedLog {
    inner: MemoryLog,
    is_full: Arc<AtomicBool>,
    held: watch::Sender<HashSet<StreamName>>,
    /// Number of reads that wait.
    waiting: watch::Sender<usize>,
}

impl GatedLog {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryLog::new(),
            is_full: Arc::default(),
            held: watch::Sender::default(),
            waiting: watch::Sender::default(),
        }
    }

    /// A log with the same records, and without locks and faults.
    pub(crate) async fn copy(&self) -> Self {
        let (copy, mut ids) = (Self::new(), AppendIds::new());
        for (stream, version) in self.inner.list("").await.expect("memory") {
            let len = usize::try_from(version.0).expect("a small log");
            let records = self.inner.read(&stream, Version(1), len).await;
            let records = records.expect("memory").into_iter();
            let records = records.map(|(_, record)| record).collect();
            let appended = copy
                .inner
                .append(&stream, Version(0), ids.next_id(), records);
            appended.await.expect("memory");
        }
        copy
    }

    /// From now on, each append fails.
    pub(crate) fn fill(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    /// From now on, reads of this task wait until [`GatedLog::release`] is called.
    pub(crate) fn hold(&self, task: &str) {
        let stream = StreamName::new(format!("task/{task}"));
        self.held.send_modify(|held| _ = held.insert(stream));
    }

    pub(crate) fn release(&self) {
        self.held.send_modify(HashSet::clear);
    }

    /// Number of reads that wait.
    pub(crate) fn waiting(&self) -> watch::Receiver<usize> {
        self.waiting.subscribe()
    }
}

struct WaitingRead(watch::Sender<usize>);

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl LogWrapper for GatedLog {
    fn inner(&self) -> &dyn Log {
        &self.inner
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        if self.is_full.load(Ordering::SeqCst) {
            let full = LogError::new(LogErrorKind::Full, "disk");
            return LogFuture::ready(Err(AppendError::Log(full)));
        }
        self.inner.append(stream, expected, id, records)
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let read = self.inner.read(stream, from, limit);
        if !self.held.borrow().contains(stream) {
            return read;
        }
        let (mut held, stream) = (self.held.subscribe(), stream.clone());
        let waiting = self.waiting.clone();
        LogFuture::waiting(async move {
            waiting.send_modify(|count| *count += 1);
            let _counted = WaitingRead(waiting);
            drop(held.wait_for(|held| !held.contains(&stream)).await);
            read.await
        })
    }
}
