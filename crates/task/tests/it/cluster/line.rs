//! The connection between a node and the shared services. The connection can be slow, lose answers, be cut, or end
//! together with the process of the node.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::{
    AppendError, AppendId, Log, LogError, LogErrorKind, LogFuture, LogWrapper, RecordBytes,
    StreamName, Version,
};
use allstop_task::{
    AskedQuestion, ClusterLink, HeldWakeUp, LinkEntry, LinkFuture, PutError, WakeUpQueue,
};
use futures::future::pending;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::cluster::dice::Dice;
use crate::cluster::seeded_bug::SeededBug;

/// Time after which a request fails if the line is cut.
const REQUEST_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineState {
    Open,
    Cut,
    /// Requests arrive, but their answers are lost.
    Unheard,
    /// Requests arrive, but their answers wait until the state of the line changes.
    LateAnswers,
    /// Reads succeed and writes fail.
    ReadOnly,
    /// Appends and reads succeed, and changes of entries fail.
    NoPuts,
    /// The process has ended or is suspended, so it receives no more answers.
    Dead,
}

/// Connection of a node. Clones share one line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    state: Arc<watch::Sender<LineState>>,
    /// Source of random delays and losses. `None` for a line without failures.
    dice: Option<Dice>,
    /// Delay in each direction.
    delay: Duration,
    /// Seeded bug in the process of the node.
    bug: Option<SeededBug>,
}

impl Line {
    pub(crate) fn new(dice: Option<Dice>) -> Self {
        Self {
            state: Arc::new(watch::Sender::new(LineState::Open)),
            dice,
            delay: Duration::ZERO,
            bug: None,
        }
    }

    pub(crate) fn with_bug(self, bug: Option<SeededBug>) -> Self {
        Self { bug, ..self }
    }

    pub(crate) fn slowed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(crate) fn set(&self, state: LineState) {
        self.state.send_replace(state);
    }

    fn is_open(&self) -> bool {
        *self.state.borrow() == LineState::Open
    }

    /// Transmits a request or an answer in one direction. Returns false if the line loses the request or answer.
    async fn pass(&self) -> bool {
        if let Some(dice) = &self.dice {
            match dice.roll(40) {
                0 => return false,
                1..=3 => sleep(Duration::from_millis(dice.roll(900))).await,
                _ => sleep(Duration::from_millis(dice.roll(4))).await,
            }
        }
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
        let mut state = self.state.subscribe();
        let opened = timeout(
            REQUEST_MAX,
            state.wait_for(|state| *state != LineState::Cut),
        );
        let is_open = opened.await.is_ok();
        if *self.state.borrow() == LineState::Dead {
            pending::<()>().await;
        }
        is_open
    }

    /// Waits until answers can pass.
    async fn answers_pass(&self) {
        let mut state = self.state.subscribe();
        // The sender is part of this line, so the wait ends only with a change of the state.
        let _changed = state
            .wait_for(|state| *state != LineState::LateAnswers)
            .await;
    }

    /// Sends a request that changes data. The line may lose the request or its answer.
    async fn request<T>(&self, request: impl Future<Output = T>) -> Result<T, Lost> {
        if !self.pass().await {
            return Err(Lost::Request);
        }
        let answer = request.await;
        self.answers_pass().await;
        if self.pass().await && *self.state.borrow() != LineState::Unheard {
            Ok(answer)
        } else {
            Err(Lost::Answer)
        }
    }

    async fn write<T>(&self, request: impl Future<Output = T>) -> Result<T, Lost> {
        if *self.state.borrow() == LineState::ReadOnly {
            return Err(Lost::Request);
        }
        self.request(request).await
    }

    async fn read<T>(
        &self,
        request: impl Future<Output = Result<T, LogError>>,
    ) -> Result<T, LogError> {
        match self.request(request).await {
            Ok(answer) => answer,
            Err(_lost) => Err(unreachable()),
        }
    }
}

impl Line {
    fn ignores_fence(&self, records: &[RecordBytes]) -> bool {
        match self.bug {
            Some(SeededBug::SkippedFence) => true,
            Some(SeededBug::IntentNotChecked) => {
                records.iter().any(|record| is(record, "execution_started"))
            }
            _ => false,
        }
    }

    /// Changes the leases of other workers to the values that a node with this line's seeded bug would see.
    async fn misjudge(&self, link: &dyn ClusterLink, leases: &mut [LinkEntry]) {
        match (self.bug, &self.dice) {
            (Some(SeededBug::AckAsOwnership), _) => {
                for lease in leases {
                    lease.value = ENDED.to_vec();
                }
            }
            (Some(SeededBug::WallClockExpiry), Some(dice)) if dice.roll(10) == 0 => {
                for lease in leases {
                    let revision = Some(lease.revision);
                    // The put fails if the worker has renewed the lease or if the lease has ended.
                    let _ended = link.put(&lease.key, ENDED.to_vec(), revision, None).await;
                }
            }
            _ => {}
        }
    }
}

/// Prefix of the keys of leases, and the value of an ended lease, in the format of the nodes.
const LEASES: &str = "worker/";
const ENDED: &[u8] = br#"{"lease":"ended"}"#;

/// True if the encoded record has this type.
fn is(record: &RecordBytes, kind: &str) -> bool {
    record.starts_with(format!("{{\"v\":1,\"type\":\"{kind}\"").as_bytes())
}

async fn last_version(log: &dyn Log, stream: &StreamName) -> Result<Version, AppendError> {
    let records = log.read(stream, Version(1), 10_000).await?;
    Ok(records.last().map_or(Version(0), |(version, _)| *version))
}

enum Lost {
    Request,
    Answer,
}

fn unreachable() -> LogError {
    LogError::new(LogErrorKind::Unreachable, "line")
}

/// A log that a node reaches over a line.
#[derive(Debug)]
pub(crate) struct LineLog {
    pub log: Arc<dyn Log>,
    pub line: Line,
}

impl LogWrapper for LineLog {
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
        let (log, line, stream) = (Arc::clone(&self.log), self.line.clone(), stream.clone());
        LogFuture::waiting(async move {
            let append = async {
                let expected = if line.ignores_fence(&records) {
                    last_version(&*log, &stream).await?
                } else {
                    expected
                };
                log.append(&stream, expected, id, records).await
            };
            match line.write(append).await {
                Ok(answer) => answer,
                Err(Lost::Request) => Err(AppendError::Log(unreachable())),
                Err(Lost::Answer) => Err(AppendError::Indeterminate),
            }
        })
    }

    fn read(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (read, line) = (self.log.read(stream, from, limit), self.line.clone());
        LogFuture::waiting(async move {
            let mut records = line.read(read).await?;
            if line.bug == Some(SeededBug::IntentNotChecked)
                && let Some(at) = records
                    .iter()
                    .position(|(_, record)| is(record, "stop_requested"))
            {
                records.truncate(at);
            }
            Ok(records)
        })
    }

    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        let (tail, line) = (self.log.tail(stream, from, limit), self.line.clone());
        LogFuture::waiting(async move { line.read(tail).await })
    }
}

/// The shared services of a cluster (a link), which a node reaches over a line.
#[derive(Debug)]
pub(crate) struct LineLink {
    pub link: Arc<dyn ClusterLink>,
    pub line: Line,
}

impl WakeUpQueue for LineLink {
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>> {
        let (shared, line) = (Arc::clone(&self.link), self.line.clone());
        async move {
            if line.dice.as_ref().is_some_and(|dice| dice.roll(10) == 0) {
                // The wake-up is sent twice, as if a client had repeated its request after a lost answer.
                line.read(async { shared.wake(wake_up.clone()).await })
                    .await?;
            }
            line.read(async { shared.wake(wake_up).await }).await
        }
        .boxed()
    }

    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>> {
        let (shared, line) = (Arc::clone(&self.link), self.line.clone());
        async move {
            let held = line.read(async { shared.next_wake_up().await }).await?;
            let held = Arc::from(held);
            Ok(Box::new(LineWakeUp { held, line }) as Box<dyn HeldWakeUp>)
        }
        .boxed()
    }

    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>> {
        let (shared, line) = (Arc::clone(&self.link), self.line.clone());
        async move {
            let held = line.read(async { shared.waiting_wake_up().await }).await?;
            Ok(held.map(|held| {
                let held = Arc::from(held);
                Box::new(LineWakeUp { held, line }) as Box<dyn HeldWakeUp>
            }))
        }
        .boxed()
    }
}

impl ClusterLink for LineLink {
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>> {
        let (shared, line, key) = (Arc::clone(&self.link), self.line.clone(), key.to_owned());
        async move { line.read(async { shared.entry(&key).await }).await }.boxed()
    }

    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>> {
        let (shared, line, prefix) = (Arc::clone(&self.link), self.line.clone(), prefix.to_owned());
        async move {
            let mut entries = line.read(async { shared.entries(&prefix).await }).await?;
            if prefix == LEASES {
                line.misjudge(&*shared, &mut entries).await;
            }
            Ok(entries)
        }
        .boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>> {
        let (shared, line, key) = (Arc::clone(&self.link), self.line.clone(), key.to_owned());
        if *line.state.borrow() == LineState::NoPuts {
            return async { Err(PutError::Failed(unreachable())) }.boxed();
        }
        async move {
            let put = async { shared.put(&key, value, expected, ttl).await };
            match line.write(put).await {
                Ok(answer) => answer,
                Err(Lost::Request) => Err(PutError::Failed(unreachable())),
                Err(Lost::Answer) => Err(PutError::Unknown(unreachable())),
            }
        }
        .boxed()
    }

    fn remove(&self, key: &str, revision: u64) -> LinkFuture<Result<(), LogError>> {
        let (shared, line, key) = (Arc::clone(&self.link), self.line.clone(), key.to_owned());
        async move {
            match line.write(shared.remove(&key, revision)).await {
                Ok(answer) => answer,
                Err(Lost::Request | Lost::Answer) => Err(unreachable()),
            }
        }
        .boxed()
    }

    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>> {
        let (shared, line, worker) = (Arc::clone(&self.link), self.line.clone(), worker.clone());
        async move {
            line.read(async { shared.ask(&worker, question, max).await })
                .await
        }
        .boxed()
    }

    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>> {
        let (questions, line) = (self.link.questions(worker), self.line.clone());
        async move {
            let questions = questions.await?;
            // Questions are lost while the line is not open.
            let heard = questions.filter(move |_| std::future::ready(line.is_open()));
            Ok(heard.boxed())
        }
        .boxed()
    }
}

struct LineWakeUp {
    held: Arc<dyn HeldWakeUp>,
    line: Line,
}

impl HeldWakeUp for LineWakeUp {
    fn payload(&self) -> &[u8] {
        self.held.payload()
    }

    fn deliveries(&self) -> u64 {
        self.held.deliveries()
    }

    fn hold_every(&self) -> Duration {
        self.held.hold_every()
    }

    fn hold(&self) -> LinkFuture<Result<(), LogError>> {
        let (held, line) = (Arc::clone(&self.held), self.line.clone());
        async move { line.read(async { held.hold().await }).await }.boxed()
    }

    fn release_after(&self, pause: Duration) -> LinkFuture<Result<(), LogError>> {
        let (held, line) = (Arc::clone(&self.held), self.line.clone());
        async move { line.read(async { held.release_after(pause).await }).await }.boxed()
    }

    fn remove(&self) -> LinkFuture<Result<(), LogError>> {
        let (held, line) = (Arc::clone(&self.held), self.line.clone());
        async move { line.read(async { held.remove().await }).await }.boxed()
    }
}
