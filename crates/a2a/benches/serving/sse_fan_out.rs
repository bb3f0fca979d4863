//! Events of one task to 1,000 connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure};
use allstop_core::receipt::ItemKind;
use allstop_log::MemoryLog;
use allstop_scope::{GRACE_DEFAULT, Scope, WorkSpec};
use allstop_task::{EventWriter, TaskManager};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::deliveries::{Deliveries, WriterSender, marked_event};
use crate::fan_out::SUBSCRIBERS;
use crate::sse_reader::SseReader;
use crate::{memory, product};

/// Number of events in a sample.
const EVENTS: usize = 5;
const ROUNDS: usize = 20;
/// Number of events that together have 16 MB. This is more than the buffers of a connection can contain, so the server
/// has to wait for the stalled subscriber.
const STALLING_EVENTS: usize = 256;
const STALLING_EVENT_BYTES: usize = 64 * 1_024;
/// Number of events during which the memory is measured. The log keeps a part of these events, and the memory must not
/// grow by more than this part.
const MEMORY_EVENTS: usize = 500;
const MEMORY_GROWTH_MB_MAX: f64 = 16.0;

/// One task, its server, and its connections.
struct SseFanOut {
    manager: TaskManager,
    scope: Scope,
    server: SocketAddr,
    task: String,
    events: EventWriter,
    deliveries: Arc<Deliveries>,
    reading: usize,
    events_written: usize,
}

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    let name = |at| format!("event to 1,000 connections, one stalled, p{at} of arrivals");
    let memory = "MB of growth by 500 events, one of 1,000 connections stalled";
    if ![name(50), name(99), memory.to_owned()]
        .iter()
        .any(|name| suite.wants(name))
    {
        return;
    }
    let mut all_read = runtime.block_on(SseFanOut::new());
    runtime.block_on(all_read.connect(SUBSCRIBERS));
    let mut with_stalled = runtime.block_on(SseFanOut::new());
    let mut stalled = runtime.block_on(with_stalled.stall_one());
    runtime.block_on(with_stalled.connect(SUBSCRIBERS - 1));
    for at in [50, 99] {
        suite.run(
            Figure::new(name(at), || {
                runtime.block_on(with_stalled.sample(EVENTS, at))
            })
            .rounds(ROUNDS)
            .against("all read", || runtime.block_on(all_read.sample(EVENTS, at)))
            .ratio_at_most(1.3),
        );
    }
    let before = memory::resident_mb();
    runtime.block_on(with_stalled.sample(MEMORY_EVENTS, 50));
    if let Some((before, after)) = before.zip(memory::resident_mb()) {
        suite.count(
            memory,
            (after - before).max(0.0),
            Some(MEMORY_GROWTH_MB_MAX),
        );
        suite.count("MB of all 2,000 connections, both ends", after, None);
    }
    // The stalled subscriber was only late: when it reads again, it receives every event in order.
    runtime.block_on(async {
        for _ in 0..with_stalled.events_written {
            stalled.read_event().await;
        }
    });
}

impl SseFanOut {
    async fn new() -> Self {
        let (writers_tx, mut writers) = mpsc::channel(1);
        let scope = product::root(GRACE_DEFAULT);
        let log = Arc::new(MemoryLog::new());
        let manager = product::manager(&scope, log, WriterSender(writers_tx)).await;
        let task = product::begin(&manager, 0, "").await;
        Self {
            server: product::serve(&scope, manager.clone()).await,
            manager,
            scope,
            task: task.task_id.to_string(),
            events: writers.recv().await.expect("it runs"),
            deliveries: Deliveries::new(),
            reading: 0,
            events_written: 0,
        }
    }

    /// Connects a subscriber that does not read, and writes more events than the connection can buffer.
    async fn stall_one(&mut self) -> SseReader {
        let stalled = SseReader::subscribe_small(self.server, &self.task).await;
        // A second subscriber receives each event as soon as it is written, so this function can wait until all are
        // written.
        let id = self.task.as_str().into();
        let subscription = self.manager.subscribe(&id, None).await;
        let mut subscription = subscription.expect("it runs");
        for _ in 0..STALLING_EVENTS {
            let event = self.next_event(STALLING_EVENT_BYTES);
            self.events.write(event).await.expect("nobody stops it");
        }
        // One item more than the events, because the snapshot of the task counts as an item.
        for _ in 0..=STALLING_EVENTS {
            let item = subscription.next().await.expect("it runs");
            item.expect("the log is in memory");
        }
        stalled
    }

    /// Connects subscribers that read.
    async fn connect(&mut self, subscribers: usize) {
        for _ in 0..subscribers {
            let mut reader =
                SseReader::subscribe(self.server, &self.task, self.events_written).await;
            let deliveries = Arc::clone(&self.deliveries);
            let spec = WorkSpec::new(ItemKind::Future, "subscriber");
            let reading = self.scope.spawn(spec, |_cx| async move {
                loop {
                    reader.read_event().await;
                    deliveries.arrived();
                }
            });
            drop(reading.expect("nothing is stopped"));
        }
        self.reading = subscribers;
    }

    async fn sample(&mut self, events: usize, percentile: usize) -> Duration {
        for _ in 0..events {
            let event = self.next_event(0);
            let delivered = self.deliveries.deliver(&self.events, event, self.reading);
            delivered.await;
        }
        self.deliveries.take_percentile(percentile)
    }

    fn next_event(&mut self, padding_bytes: usize) -> allstop_task::TaskEvent {
        let event = marked_event(self.events_written, padding_bytes);
        self.events_written += 1;
        event
    }
}
