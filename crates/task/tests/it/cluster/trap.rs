//! A log with a trap at one append. Other work happens before this append, and the store fails after this append.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use allstop_log::{
    AppendError, AppendId, Log, LogError, LogErrorKind, LogFuture, LogWrapper, RecordBytes,
    StreamName, Version,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

/// A record of a newer version, which this version cannot read.
pub(crate) const NEWER_RECORD: &[u8] = br#"{"v":3,"type":"task_forked"}"#;

/// Work of another process, done just before the append.
type Meanwhile = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// Trap at one append. Clones share one trap.
#[derive(Clone, Default)]
pub(crate) struct Trap {
    /// Type of a record. The first append of such a record triggers the trap.
    at: &'static str,
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    /// Number of reads, and number of appends, that fail after the trap was triggered.
    failures: (usize, usize),
    failing_reads: Arc<AtomicUsize>,
    failing_appends: Arc<AtomicUsize>,
    /// Number of the next deletions that fail.
    pub(crate) failing_deletions: Arc<AtomicUsize>,
    /// True if every read ends with a record of a newer version.
    pub(crate) reads_newer: Arc<AtomicBool>,
}

impl Trap {
    pub(crate) fn at(record_type: &'static str) -> Self {
        Self {
            at: record_type,
            ..Self::default()
        }
    }

    /// Makes these numbers of reads and appends fail after the trap was triggered.
    pub(crate) fn failing(self, reads: usize, appends: usize) -> Self {
        Self {
            failures: (reads, appends),
            ..self
        }
    }

    /// Sets the work that happens before the append.
    pub(crate) fn set<F>(&self, meanwhile: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        *self.meanwhile.lock() = Some(Box::new(move || meanwhile().boxed()));
    }
}

/// A log that contains the trap.
#[derive(Clone)]
pub(crate) struct TrapLog {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) trap: Trap,
}

impl fmt::Debug for TrapLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrapLog")
    }
}

fn failure() -> LogError {
    LogError::new(LogErrorKind::Unreachable, "trap")
}

/// Uses one of the remaining failures. Returns false if no failure remains.
fn fails(left: &AtomicUsize) -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
        .is_ok()
}

impl LogWrapper for TrapLog {
    fn inner(&self) -> &dyn Log {
        &*self.log
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let (this, stream) = (self.clone(), stream.clone());
        LogFuture::waiting(async move {
            let trap = &this.trap;
            if fails(&trap.failing_appends) {
                return Err(AppendError::Log(failure()));
            }
            let kind = format!("\"type\":\"{}\"", trap.at);
            let is_it = |record: &RecordBytes| String::from_utf8_lossy(record).contains(&kind);
            let meanwhile = if records.iter().any(is_it) {
                trap.meanwhile.lock().take()
            } else {
                None
            };
            let Some(meanwhile) = meanwhile else {
                return this.log.append(&stream, expected, id, records).await;
            };
            meanwhile().await;
            let answer = this.log.append(&stream, expected, id, records).await;
            trap.failing_reads.store(trap.failures.0, Ordering::SeqCst);
            trap.failing_appends
                .store(trap.failures.1, Ordering::SeqCst);
            answer
        })
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (this, stream) = (self.clone(), stream.clone());
        LogFuture::waiting(async move {
            if fails(&this.trap.failing_reads) {
                return Err(failure());
            }
            let mut read = this.log.read(&stream, from, limit).await?;
            if this.trap.reads_newer.load(Ordering::SeqCst)
                && let Some(last) = read.last_mut()
            {
                last.1 = RecordBytes::from(NEWER_RECORD.to_vec());
            }
            Ok(read)
        })
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        if fails(&self.trap.failing_deletions) {
            return LogFuture::ready(Err(failure()));
        }
        self.log.delete_unchanged(streams)
    }
}
