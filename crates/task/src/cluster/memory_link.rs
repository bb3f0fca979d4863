//! A cluster link in memory, for tests and simulations. The link contains the services that the managers of a cluster
//! share. With this link, several managers in one process form a cluster.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::WorkerId;
use allstop_log::{LogError, LogErrorKind};
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream::{BoxStream, unfold};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::link::{
    AskedQuestion, ClusterLink, HeldWakeUp, LinkEntry, LinkFuture, PutError, WakeUpQueue,
};

/// Time after which a wake-up (a hint that a task needs a worker) is delivered again if no worker holds it.
const REDELIVERED_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of questions that wait for one worker.
const QUESTIONS_MAX: usize = 1_024;

/// Link between the managers of one process. Clones share one link.
#[derive(Debug, Clone, Default)]
pub struct MemoryLink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<MemoryEntries>,
    queue: Mutex<Queue>,
    woken: Notify,
    /// Number of calls that wait for the next wake-up.
    waiting: AtomicUsize,
    workers: Mutex<HashMap<WorkerId, mpsc::Sender<AskedQuestion>>>,
}

#[derive(Debug, Default)]
struct MemoryEntries {
    last: u64,
    by_key: BTreeMap<Arc<str>, LinkEntry>,
}

#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: VecDeque<QueuedWakeUp>,
    /// Delivered wake-ups, each with the time of its next delivery.
    held: BTreeMap<u64, (Instant, QueuedWakeUp)>,
}

#[derive(Debug, Clone)]
struct QueuedWakeUp {
    number: u64,
    payload: Vec<u8>,
    deliveries: u64,
}

#[derive(Debug)]
struct MemoryWakeUp {
    shared: Arc<Shared>,
    queued: QueuedWakeUp,
}

/// A call that waits for the next wake-up.
struct WaitingTaker(Arc<Shared>);

impl WaitingTaker {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for WaitingTaker {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl MemoryLink {
    /// Creates an empty link.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of wake-ups that no worker has removed.
    pub fn wake_ups(&self) -> usize {
        let queue = self.0.queue.lock();
        queue.waiting.len() + queue.held.len()
    }
}

impl Queue {
    /// Takes the next wake-up, or returns the earliest time at which a wake-up may be due.
    fn take(&mut self, now: Instant) -> Result<QueuedWakeUp, Option<Instant>> {
        let due = self.held.iter().find(|(_, (at, _))| *at <= now);
        if let Some(number) = due.map(|(number, _)| *number)
            && let Some((_, queued)) = self.held.remove(&number)
        {
            self.waiting.push_back(queued);
        }
        match self.waiting.pop_front() {
            Some(mut queued) => {
                queued.deliveries += 1;
                let again = now + REDELIVERED_AFTER;
                self.held.insert(queued.number, (again, queued.clone()));
                Ok(queued)
            }
            None => Err(self.held.values().map(|(at, _)| *at).min()),
        }
    }
}

impl WakeUpQueue for MemoryLink {
    fn wake(&self, wake_up: Vec<u8>) -> LinkFuture<Result<(), LogError>> {
        let mut queue = self.0.queue.lock();
        queue.last += 1;
        let number = queue.last;
        queue.waiting.push_back(QueuedWakeUp {
            number,
            payload: wake_up,
            deliveries: 0,
        });
        drop(queue);
        self.0.woken.notify_one();
        ready(Ok(())).boxed()
    }

    fn next_wake_up(&self) -> LinkFuture<Result<Box<dyn HeldWakeUp>, LogError>> {
        let shared = Arc::clone(&self.0);
        async move {
            let _waiting = WaitingTaker::new(&shared);
            loop {
                let taken = shared.queue.lock().take(Instant::now());
                match taken {
                    Ok(queued) => {
                        // Another wake-up may be available for the next waiting call.
                        shared.woken.notify_one();
                        let shared = Arc::clone(&shared);
                        let held = MemoryWakeUp { shared, queued };
                        return Ok(Box::new(held) as Box<dyn HeldWakeUp>);
                    }
                    Err(Some(at)) => {
                        tokio::select! {
                            () = shared.woken.notified() => {}
                            () = sleep_until(at) => {}
                        }
                    }
                    Err(None) => shared.woken.notified().await,
                }
            }
        }
        .boxed()
    }

    fn waiting_wake_up(&self) -> LinkFuture<Result<Option<Box<dyn HeldWakeUp>>, LogError>> {
        let shared = Arc::clone(&self.0);
        // Calls that wait in `next_wake_up` have priority.
        let taken = match shared.waiting.load(Ordering::SeqCst) {
            0 => shared.queue.lock().take(Instant::now()).ok(),
            _ => None,
        };
        let held =
            taken.map(|queued| Box::new(MemoryWakeUp { shared, queued }) as Box<dyn HeldWakeUp>);
        ready(Ok(held)).boxed()
    }
}

impl ClusterLink for MemoryLink {
    fn entry(&self, key: &str) -> LinkFuture<Result<Option<LinkEntry>, LogError>> {
        let entry = self.0.entries.lock().by_key.get(key).cloned();
        ready(Ok(entry)).boxed()
    }

    fn entries(&self, prefix: &str) -> LinkFuture<Result<Vec<LinkEntry>, LogError>> {
        let entries = self.0.entries.lock();
        let found = entries.by_key.values();
        let found = found.filter(|entry| entry.key.starts_with(prefix));
        ready(Ok(found.cloned().collect())).boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        _ttl: Option<Duration>,
    ) -> LinkFuture<Result<u64, PutError>> {
        let mut entries = self.0.entries.lock();
        let present = entries.by_key.get(key).map_or(0, |entry| entry.revision);
        if expected.is_some_and(|expected| expected != present) {
            return ready(Err(PutError::Conflict)).boxed();
        }
        entries.last += 1;
        let (key, revision) = (Arc::<str>::from(key), entries.last);
        let entry = LinkEntry {
            key: Arc::clone(&key),
            revision,
            value,
        };
        entries.by_key.insert(key, entry);
        ready(Ok(revision)).boxed()
    }

    fn remove(&self, key: &str, revision: u64) -> LinkFuture<Result<(), LogError>> {
        let mut entries = self.0.entries.lock();
        if entries.by_key.get(key).map(|entry| entry.revision) == Some(revision) {
            entries.by_key.remove(key);
        }
        ready(Ok(())).boxed()
    }

    fn ask(
        &self,
        worker: &WorkerId,
        question: Vec<u8>,
        max: Duration,
    ) -> LinkFuture<Result<Option<Vec<u8>>, LogError>> {
        let asked = self.0.workers.lock().get(worker).cloned();
        async move {
            let Some(asked) = asked else {
                return Ok(None);
            };
            let (answer, answered) = oneshot::channel();
            let question = AskedQuestion {
                question,
                answer: Box::new(move |bytes| {
                    // The process that asked may have ended in the meantime.
                    let _unheard = answer.send(bytes);
                    ready(()).boxed()
                }),
            };
            let asking = async {
                asked.send(question).await.ok()?;
                answered.await.ok()
            };
            Ok(timeout(max, asking).await.ok().flatten())
        }
        .boxed()
    }

    fn questions(
        &self,
        worker: &WorkerId,
    ) -> LinkFuture<Result<BoxStream<'static, AskedQuestion>, LogError>> {
        let (asked, questions) = mpsc::channel(QUESTIONS_MAX);
        self.0.workers.lock().insert(worker.clone(), asked);
        let questions = unfold(questions, |mut questions| async move {
            let next = questions.recv().await?;
            Some((next, questions))
        });
        ready(Ok(questions.boxed())).boxed()
    }
}

impl MemoryWakeUp {
    /// Changes the time of the next delivery. Fails if the wake-up has been delivered again.
    fn again_at(&self, at: Instant) -> Result<(), LogError> {
        match self.shared.queue.lock().held.get_mut(&self.queued.number) {
            Some((again, _)) => *again = at,
            None => return Err(LogError::new(LogErrorKind::NotFound, "wake-up")),
        }
        self.shared.woken.notify_one();
        Ok(())
    }
}

impl HeldWakeUp for MemoryWakeUp {
    fn payload(&self) -> &[u8] {
        &self.queued.payload
    }

    fn deliveries(&self) -> u64 {
        self.queued.deliveries
    }

    fn hold_every(&self) -> Duration {
        REDELIVERED_AFTER / 3
    }

    fn hold(&self) -> LinkFuture<Result<(), LogError>> {
        ready(self.again_at(Instant::now() + REDELIVERED_AFTER)).boxed()
    }

    fn release_after(&self, pause: Duration) -> LinkFuture<Result<(), LogError>> {
        ready(self.again_at(Instant::now() + pause)).boxed()
    }

    fn remove(&self) -> LinkFuture<Result<(), LogError>> {
        let mut queue = self.shared.queue.lock();
        queue.held.remove(&self.queued.number);
        queue
            .waiting
            .retain(|queued| queued.number != self.queued.number);
        ready(Ok(())).boxed()
    }
}
