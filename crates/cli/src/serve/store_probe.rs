//! Probe of the task store: it writes a record, because a store with a full disk can still be read.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::error_chain;
use allstop_core::receipt::ItemKind;
use allstop_log::{AppendError, AppendIds, LockAttempt, Log, RecordBytes, StreamName, Version};
use allstop_scope::{NotStarted, Scope, WorkSpec};
use allstop_terminal::{OutputPriority, OutputQueue, Styled};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

/// Stream of the records that the probe writes.
const STREAM: &str = "probe/readiness";

/// Time for which the result of a probe counts, so that a client that asks often does not fill the store.
const RESULT_AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum time of a probe. A store that takes longer is not ready.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// Interval of probes that no client has asked for. They report a full disk on standard error.
const UNASKED_EVERY: Duration = Duration::from_secs(30);

/// Number of records after which the stream is deleted.
const RECORDS_MAX: u64 = 100;

#[derive(Debug, Clone)]
struct ProbeResult {
    at: Instant,
    problem: Option<Arc<str>>,
}

/// Handle of the probe. Clones share the probe.
#[derive(Debug, Clone)]
pub(super) struct StoreProbe {
    wanted: Arc<Notify>,
    result: watch::Receiver<Option<ProbeResult>>,
}

impl StoreProbe {
    /// Starts the probe in the scope of the connections, which ends before the store closes. The probe reports changes on
    /// standard error.
    ///
    /// # Errors
    /// If the scope is stopped.
    pub(super) fn start(
        log: Arc<dyn Log>,
        scope: &Scope,
        stderr: OutputQueue,
    ) -> Result<Self, NotStarted> {
        let (results, result) = watch::channel(None);
        let wanted = Arc::<Notify>::default();
        let spec = WorkSpec::new(ItemKind::Future, "probe of the store");
        let asked = Arc::clone(&wanted);
        scope.spawn(spec, |cx| async move {
            let mut probe = WritingProbe {
                log,
                version: Version(0),
                ids: AppendIds::new(),
            };
            let probing = async {
                loop {
                    let problem = probe.run().await;
                    report(&results, problem, &stderr);
                    sleep(RESULT_AGE_MAX).await;
                    let _asked_or_due = timeout(UNASKED_EVERY, asked.notified()).await;
                }
            };
            tokio::select! {
                biased;
                _cause = cx.stopped_at("probe") => {}
                () = probing => {}
            }
        })?;
        Ok(Self { wanted, result })
    }

    /// The problem of the store; `None` if a record was written within the last second.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn problem(&self) -> Option<Arc<str>> {
        let is_recent = |result: &Option<ProbeResult>| {
            let at = result.as_ref().map(|result| result.at);
            at.is_some_and(|at| at.elapsed() < RESULT_AGE_MAX)
        };
        let mut result = self.result.clone();
        self.wanted.notify_one();
        let late = || Some("the store does not answer".into());
        match timeout(PROBE_MAX + RESULT_AGE_MAX, result.wait_for(is_recent)).await {
            Ok(Ok(result)) => result.as_ref().and_then(|result| result.problem.clone()),
            Ok(Err(_)) | Err(_) => late(),
        }
    }
}

fn report(
    results: &watch::Sender<Option<ProbeResult>>,
    problem: Option<Arc<str>>,
    stderr: &OutputQueue,
) {
    let last = results
        .borrow()
        .as_ref()
        .and_then(|last| last.problem.clone());
    let line = match (&last, &problem) {
        (None, Some(problem)) => Some(format!(
            "the task store cannot be written: {problem}. Requests that need it fail, and /readyz answers 503"
        )),
        (Some(_), None) => Some("the task store can be written again".to_owned()),
        _ => None,
    };
    if let Some(line) = line {
        stderr.lines(Styled::from(line), OutputPriority::Required);
    }
    results.send_replace(Some(ProbeResult {
        at: Instant::now(),
        problem,
    }));
}

struct WritingProbe {
    log: Arc<dyn Log>,
    version: Version,
    ids: AppendIds,
}

impl WritingProbe {
    async fn run(&mut self) -> Option<Arc<str>> {
        match timeout(PROBE_MAX, self.write()).await {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some("the store does not answer".into()),
        }
    }

    async fn write(&mut self) -> Result<(), Arc<str>> {
        let stream = StreamName::new(STREAM);
        // Another process may write to the same stream. Its version is then adopted, and the probe is tried again.
        for _ in 0..3 {
            let id = self.ids.next_id();
            let record = RecordBytes::from_static(b"{}");
            match self
                .log
                .append(&stream, self.version, id, vec![record])
                .await
            {
                Ok(version) => {
                    self.version = version;
                    if version.0 >= RECORDS_MAX {
                        self.start_again(&stream).await;
                    }
                    return Ok(());
                }
                Err(AppendError::Conflict { actual }) => self.version = actual,
                Err(error) => return Err(error_chain(&error).into()),
            }
        }
        Ok(())
    }

    /// Deletes the records of the probe. If that fails, the next probe tries it again.
    async fn start_again(&mut self, stream: &StreamName) {
        if let Ok(LockAttempt::Locked(lock)) = self.log.try_lock(stream).await
            && self.log.delete(lock).await.is_ok()
        {
            self.version = Version(0);
        }
    }
}
