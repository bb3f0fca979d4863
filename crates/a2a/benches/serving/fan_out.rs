//! Events of one task to 1,000 subscribers of the task manager.

use std::sync::Arc;
use std::time::Duration;

use allstop_bench::{BenchSuite, Figure};
use allstop_core::receipt::ItemKind;
use allstop_log::MemoryLog;
use allstop_scope::{GRACE_DEFAULT, Scope, WorkSpec};
use allstop_task::{EventWriter, SubscriptionItem, TaskManager, TaskRecord, TaskSubscription};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::deliveries::{Deliveries, WriterSender, marked_event};
use crate::product;

pub(crate) const SUBSCRIBERS: usize = 1_000;
/// Number of events in a sample.
const EVENTS: usize = 20;
const ROUNDS: usize = 20;

/// One task and its subscribers.
struct FanOut {
    _manager: TaskManager,
    events: EventWriter,
    deliveries: Arc<Deliveries>,
    reading: usize,
    events_written: usize,
    /// Subscription that is never read.
    _stalled: Option<TaskSubscription>,
}

pub(crate) fn run(suite: &mut BenchSuite, runtime: &Runtime) {
    for (at, goal) in [(50, 1.3), (99, 1.3)] {
        let name = format!("event to 1,000 subscribers, one stalled, p{at} of arrivals");
        if !suite.wants(&name) {
            continue;
        }
        let mut stalled = runtime.block_on(FanOut::new(SUBSCRIBERS - 1, true));
        let mut all_read = runtime.block_on(FanOut::new(SUBSCRIBERS, false));
        suite.run(
            Figure::new(name, || runtime.block_on(stalled.sample(at)))
                .rounds(ROUNDS)
                .against("all read", || runtime.block_on(all_read.sample(at)))
                .ratio_at_most(goal),
        );
    }
}

impl FanOut {
    async fn new(reading: usize, has_stalled: bool) -> Self {
        let (writers_tx, mut writers) = mpsc::channel(1);
        let scope = product::root(GRACE_DEFAULT);
        let log = Arc::new(MemoryLog::new());
        let manager = product::manager(&scope, log, WriterSender(writers_tx)).await;
        let task = product::begin(&manager, 0, "").await;
        let deliveries = Deliveries::new();
        for _ in 0..reading {
            let subscription = manager.subscribe(&task.task_id, None).await;
            read(&scope, subscription.expect("it runs"), &deliveries);
        }
        Self {
            _manager: manager,
            events: writers.recv().await.expect("it runs"),
            deliveries,
            reading,
            events_written: 0,
            _stalled: has_stalled.then_some(task.subscription),
        }
    }

    async fn sample(&mut self, percentile: usize) -> Duration {
        for _ in 0..EVENTS {
            let event = marked_event(self.events_written, 0);
            self.events_written += 1;
            let delivered = self.deliveries.deliver(&self.events, event, self.reading);
            delivered.await;
        }
        self.deliveries.take_percentile(percentile)
    }
}

/// Reads a subscription in the scope.
fn read(scope: &Scope, mut subscription: TaskSubscription, deliveries: &Arc<Deliveries>) {
    let deliveries = Arc::clone(deliveries);
    let spec = WorkSpec::new(ItemKind::Future, "subscriber");
    let reading = scope.spawn(spec, |_cx| async move {
        while let Some(Ok(item)) = subscription.next().await {
            if let SubscriptionItem::Update(update) = item
                && matches!(*update.record, TaskRecord::ArtifactUpdated { .. })
            {
                deliveries.arrived();
            }
        }
    });
    drop(reading.expect("nothing is stopped"));
}
