//! A log whose appends fail or wait on demand. Each append has three points: before the append, when the append is
//! durable but not yet answered, and after the answer.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_log::{
    AppendError, AppendId, LockAttempt, Log, LogError, LogErrorKind, LogFuture, LogWrapper,
    RecordBytes, StreamLock, StreamName, Version,
};
use futures::executor::block_on;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::observe::{APPEND, Moment};
use crate::stage::{INSIDE, PartWatch};

/// Fault of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFault {
    /// The store is full: it writes nothing, and returns an error.
    Refuse,
    /// The store stalls: it writes nothing and gives no answer until [`FaultyLog::release`] is called.
    Hold,
    /// The store writes the append, but its answer is lost.
    LoseAnswer,
}

/// A log in which chosen appends fail.
#[derive(Debug)]
pub struct FaultyLog {
    inner: Arc<dyn Log>,
    armed: Mutex<Option<ArmedFault>>,
    held: Mutex<Vec<HeldAppend>>,
    reached: Notify,
    watch: Option<PartWatch>,
    is_immediate: bool,
}

#[derive(Debug, Clone, Copy)]
struct ArmedFault {
    /// The fault applies only to appends with a record of this type; `None` for all appends.
    record_type: Option<&'static str>,
    fault: LogFault,
    once: bool,
}

/// An append as the caller requested it.
#[derive(Debug)]
struct LogAppend {
    stream: StreamName,
    expected: Version,
    id: AppendId,
    records: Vec<RecordBytes>,
}

/// An append that the store has accepted but not written. The store will write the append even if the caller no longer
/// waits.
#[derive(Debug)]
struct HeldAppend {
    append: LogAppend,
    answer: oneshot::Sender<Result<Version, AppendError>>,
}

impl FaultyLog {
    /// Creates a log without a fault that passes its calls to `inner`.
    pub fn new(inner: Arc<dyn Log>) -> Self {
        Self {
            inner,
            armed: Mutex::default(),
            held: Mutex::default(),
            reached: Notify::new(),
            watch: None,
            is_immediate: false,
        }
    }

    /// Like [`FaultyLog::new`], but with points at each append.
    pub(crate) fn watched(inner: Arc<dyn Log>, watch: PartWatch) -> Self {
        Self {
            watch: Some(watch),
            ..Self::new(inner)
        }
    }

    /// Creates a log that passes its calls to `inner`. The answers of the new log are available at once: the thread
    /// blocks until the inner log answers. If the thread did not block, paused time would advance during the wait.
    pub(crate) fn immediate(inner: Arc<dyn Log>) -> Self {
        Self {
            is_immediate: true,
            ..Self::new(inner)
        }
    }

    /// From now on each append fails that contains a record of this type (for example `turn_committed`), until
    /// [`FaultyLog::heal`] is called.
    pub fn fail_at(&self, record_type: &'static str, fault: LogFault) {
        self.arm(Some(record_type), fault, false);
    }

    /// From now on each append fails.
    pub fn fail_all(&self, fault: LogFault) {
        self.arm(None, fault, false);
    }

    /// Only the next append fails.
    pub fn fail_once(&self, fault: LogFault) {
        self.arm(None, fault, true);
    }

    fn arm(&self, record_type: Option<&'static str>, fault: LogFault, once: bool) {
        *self.armed.lock() = Some(ArmedFault {
            record_type,
            fault,
            once,
        });
    }

    /// The answer of the inner log. If this log is immediate, this function blocks until the answer is available.
    fn forward<T: Send + 'static>(&self, answer: LogFuture<T>) -> LogFuture<T> {
        if self.is_immediate {
            return LogFuture::ready(block_on(answer));
        }
        answer
    }

    /// Removes the fault. Appends that are already held stay held.
    pub fn heal(&self) {
        *self.armed.lock() = None;
    }

    /// Waits for the next append that fails or is held.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }

    /// The records of each held append.
    pub fn held(&self) -> Vec<Vec<RecordBytes>> {
        let held = self.held.lock();
        held.iter()
            .map(|held| held.append.records.clone())
            .collect()
    }

    /// Removes the fault, writes the held appends in order, and answers the callers that still wait.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the appends that are not yet written are never written.
    pub async fn release(&self) {
        self.heal();
        let held = std::mem::take(&mut *self.held.lock());
        for HeldAppend { append, answer } in held {
            let written = append.on(&*self.inner).await;
            if let Some(watch) = &self.watch {
                note_durable(watch, &written);
            }
            // The caller may have stopped waiting.
            let _unread = answer.send(written);
        }
    }

    /// Removes the fault and drops the held appends, which are then never written. Callers that still wait receive the
    /// error that the result of the append is unknown.
    pub(crate) fn forget(&self) {
        self.heal();
        for HeldAppend { answer, .. } in std::mem::take(&mut *self.held.lock()) {
            // The caller may have stopped waiting.
            let _unread = answer.send(Err(AppendError::Indeterminate));
        }
    }

    fn fault_of(&self, records: &[RecordBytes]) -> Option<LogFault> {
        let mut armed = self.armed.lock();
        let ArmedFault {
            record_type,
            fault,
            once,
        } = (*armed)?;
        if let Some(record_type) = record_type {
            let field = format!(r#""type":"{record_type}""#);
            let mut texts = records.iter().map(|bytes| String::from_utf8_lossy(bytes));
            texts.any(|text| text.contains(&field)).then_some(())?;
        }
        if once {
            *armed = None;
        }
        Some(fault)
    }

    /// Answer to an append to which this fault applies.
    fn fail(&self, fault: LogFault, append: LogAppend) -> LogFuture<Result<Version, AppendError>> {
        let answer = match fault {
            LogFault::Refuse => {
                let full = LogError::new(LogErrorKind::Full, "the test's store");
                LogFuture::ready(Err(full.into()))
            }
            LogFault::Hold => {
                let (answer, answered) = oneshot::channel();
                self.held.lock().push(HeldAppend { append, answer });
                LogFuture::waiting(async move {
                    match answered.await {
                        Ok(answer) => answer,
                        Err(_) => std::future::pending().await,
                    }
                })
            }
            LogFault::LoseAnswer => {
                let append = append.on(&*self.inner);
                LogFuture::waiting(async move {
                    drop(append.await);
                    Err(AppendError::Indeterminate)
                })
            }
        };
        self.reached.notify_one();
        answer
    }
}

fn note_durable(watch: &PartWatch, written: &Result<Version, AppendError>) {
    if let Ok(version) = written {
        watch
            .witness
            .note(|notes, now| notes.durable.push((now, version.0)));
    }
}

impl LogAppend {
    fn on(self, log: &dyn Log) -> LogFuture<Result<Version, AppendError>> {
        log.append(&self.stream, self.expected, self.id, self.records)
    }
}

/// Performs an append without a fault, and reports its points.
async fn watched(
    watch: PartWatch,
    subject: Arc<str>,
    inner: Arc<dyn Log>,
    append: LogAppend,
) -> Result<Version, AppendError> {
    // If the future is dropped at the first sleep, the append never happens. If the future is dropped at the second
    // sleep, the append has happened. A log promises only that one of these two cases is true.
    tokio::time::sleep(INSIDE).await;
    let answer = append.on(&*inner).await;
    note_durable(&watch, &answer);
    watch
        .points
        .reach(Moment::Inside, APPEND, Arc::clone(&subject));
    tokio::time::sleep(INSIDE).await;
    watch.points.reach(Moment::After, APPEND, subject);
    answer
}

impl LogWrapper for FaultyLog {
    fn inner(&self) -> &dyn Log {
        &*self.inner
    }

    fn append(
        &self,
        stream: &StreamName,
        expected: Version,
        id: AppendId,
        records: Vec<RecordBytes>,
    ) -> LogFuture<Result<Version, AppendError>> {
        let subject: Option<Arc<str>> = self.watch.as_ref().map(|_| names(&records).into());
        if let (Some(watch), Some(subject)) = (&self.watch, &subject) {
            watch
                .points
                .reach(Moment::Before, APPEND, Arc::clone(subject));
        }
        // Read the fault only after the point, so that a fault that an action sets at this point applies to this
        // append.
        let fault = self.fault_of(&records);
        let append = LogAppend {
            stream: stream.clone(),
            expected,
            id,
            records,
        };
        match (fault, &self.watch, subject) {
            (Some(fault), ..) => self.fail(fault, append),
            (None, Some(watch), Some(subject)) => LogFuture::waiting(watched(
                watch.clone(),
                subject,
                Arc::clone(&self.inner),
                append,
            )),
            _ => self.forward(append.on(&*self.inner)),
        }
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.forward(self.inner.read(stream, from, limit))
    }

    fn list(&self, prefix: &str) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        self.forward(self.inner.list(prefix))
    }

    fn list_newest_first(
        &self,
        prefix: &str,
    ) -> LogFuture<Result<Vec<(StreamName, Version)>, LogError>> {
        self.forward(self.inner.list_newest_first(prefix))
    }

    fn try_lock(&self, stream: &StreamName) -> LogFuture<Result<LockAttempt, LogError>> {
        self.forward(self.inner.try_lock(stream))
    }

    fn lock_owner(
        &self,
        stream: &StreamName,
    ) -> LogFuture<Result<Option<ProcessIdentity>, LogError>> {
        self.forward(self.inner.lock_owner(stream))
    }

    fn delete(&self, lock: StreamLock) -> LogFuture<Result<(), LogError>> {
        self.forward(self.inner.delete(lock))
    }

    fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> LogFuture<Result<Vec<StreamName>, LogError>> {
        self.forward(self.inner.delete_unchanged(streams))
    }
}

/// The types of the records. The type stands near the beginning of each record. Decoding whole records would take
/// longer than the run itself.
fn names(records: &[RecordBytes]) -> String {
    let names: Vec<&str> = records
        .iter()
        .map(|bytes| {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let (_, rest) = text.split_once(r#""type":""#).unwrap_or_default();
            rest.split('"').next().unwrap_or_default()
        })
        .collect();
    names.join("+")
}
