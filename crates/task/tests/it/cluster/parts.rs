//! One part of a cluster is replaced, and all others stay: the work queue, the store, or the source of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allstop_log::{
    Log, LogError, LogFuture, LogWrapper, MemoryLog, RecordBytes, StreamName, Version,
    log_conformance,
};
use allstop_scope::{RootOptions, Scope};
use allstop_task::{
    ClusterOptions, MemoryLink, TaskManager, TaskOptions, TaskParts, TaskState, WakeUpQueue,
};

use crate::support::{ScriptedExecutor, ended, request, three_events};

allstop_task::wake_up_conformance!(memory_queue, async { (Arc::new(MemoryLink::new()), ()) });

fn joined(
    log: Arc<dyn Log>,
    link: &MemoryLink,
    executor: &ScriptedExecutor,
    concurrency: usize,
    change: impl FnOnce(&mut ClusterOptions),
) -> TaskManager {
    let mut cluster = ClusterOptions::new(Arc::new(link.clone()));
    cluster.concurrency = concurrency;
    change(&mut cluster);
    let scope = Scope::root("node", RootOptions::single_runtime());
    let parts = Arc::new(TaskParts::of(executor.clone()));
    TaskManager::join(log, cluster, scope, parts, TaskOptions::default()).expect("open")
}

#[tokio::test(start_paused = true)]
async fn work_queue_is_replaced_alone() {
    let (log, link, queue) = (
        Arc::new(MemoryLog::new()),
        MemoryLink::new(),
        MemoryLink::new(),
    );
    let executor = three_events();
    let own_queue = |cluster: &mut ClusterOptions| {
        cluster.wake_ups = Arc::new(queue.clone()) as Arc<dyn WakeUpQueue>;
    };
    let front = joined(log.clone(), &link, &executor, 0, own_queue);
    let mut accepted = front.execute(request("m1")).await.unwrap();
    assert_eq!((link.wake_ups(), queue.wake_ups()), (0, 1));
    let _worker = joined(log, &link, &executor, 4, own_queue);
    let task = ended(&front, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);
}

/// A store whose appends and reads go to another store, with a separate source of events.
#[derive(Debug, Default)]
struct OwnEvents {
    store: MemoryLog,
    tails: AtomicUsize,
}

impl LogWrapper for OwnEvents {
    fn inner(&self) -> &dyn Log {
        &self.store
    }

    /// The source of events. This one notes each call; it could also read from a message broker.
    fn tail(
        &self,
        stream: &StreamName,
        from: Version,
        limit: usize,
    ) -> LogFuture<Result<Vec<(Version, RecordBytes)>, LogError>> {
        self.tails.fetch_add(1, Ordering::SeqCst);
        self.store.tail(stream, from, limit)
    }
}

log_conformance!(own_events, async { (OwnEvents::default(), ()) });

/// The link is the link of all other tests; only the log differs.
#[tokio::test(start_paused = true)]
async fn store_and_its_events_are_replaced_alone() {
    let (log, link) = (Arc::new(OwnEvents::default()), MemoryLink::new());
    let executor = three_events();
    let front = joined(log.clone(), &link, &executor, 0, |_| {});
    let _worker = joined(log.clone(), &link, &executor, 4, |_| {});
    let mut accepted = front.execute(request("m1")).await.unwrap();
    let task = ended(&front, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert!(
        log.tails.load(Ordering::SeqCst) > 0,
        "events come from the tail"
    );
}
