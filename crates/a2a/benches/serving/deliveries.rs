//! Measures the time from the write of an event until the event arrives at each subscriber, and then sends the next
//! event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allstop_task::model::{Artifact, MessagePart};
use allstop_task::{EventWriter, ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

/// Executor that sends the event writer of each execution to the benchmark. The benchmark then writes the events.
pub(crate) struct WriterSender(pub(crate) mpsc::Sender<EventWriter>);

impl Executor for WriterSender {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        let writers = self.0.clone();
        async move {
            writers.send(cx.events).await.expect("the benchmark waits");
            Ok(ExecutorReturn::ContinuesElsewhere)
        }
        .boxed()
    }
}

/// Returns an event that readers recognise by its text. The event replaces the preceding event, so the task does not
/// grow.
pub(crate) fn marked_event(number: usize, padding_bytes: usize) -> TaskEvent {
    let text = format!("{}{}", marker(number), "x".repeat(padding_bytes));
    TaskEvent::artifact(Artifact {
        parts: vec![MessagePart::text(text)],
        ..Artifact::text("marked", "")
    })
}

/// Text that occurs only in this event.
pub(crate) fn marker(number: usize) -> String {
    format!("event {number:07};")
}

/// Arrivals of events at a number of subscribers. The next event is sent only after all subscribers have received the
/// preceding event.
#[derive(Debug)]
pub(crate) struct Deliveries {
    epoch: Instant,
    sent_at_ns: AtomicU64,
    missing: AtomicUsize,
    all_arrived: Notify,
    times: Mutex<Vec<Duration>>,
}

impl Deliveries {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Instant::now(),
            sent_at_ns: AtomicU64::new(0),
            missing: AtomicUsize::new(0),
            all_arrived: Notify::new(),
            times: Mutex::default(),
        })
    }

    /// Records that a subscriber has received the event.
    pub(crate) fn arrived(&self) {
        let sent_at = Duration::from_nanos(self.sent_at_ns.load(Ordering::Acquire));
        self.times
            .lock()
            .push(self.epoch.elapsed().saturating_sub(sent_at));
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_arrived.notify_one();
        }
    }

    /// Writes an event, and waits until all subscribers have received the event.
    pub(crate) async fn deliver(&self, events: &EventWriter, event: TaskEvent, subscribers: usize) {
        self.missing.store(subscribers, Ordering::Release);
        let now = u64::try_from(self.epoch.elapsed().as_nanos()).expect("a short time");
        self.sent_at_ns.store(now, Ordering::Release);
        events.write(event).await.expect("nobody stops it");
        self.all_arrived.notified().await;
    }

    /// Takes the times since the last call, and returns the time at this percentile.
    pub(crate) fn take_percentile(&self, at: usize) -> Duration {
        let mut times = std::mem::take(&mut *self.times.lock());
        percentile(&mut times, at)
    }
}

/// Returns the smallest time that is not shorter than `at` percent of all times.
pub(crate) fn percentile(times: &mut [Duration], at: usize) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * at).div_ceil(100).max(1);
    times[rank - 1]
}
