//! Removal of ended tasks in a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::ContextId;
use allstop_log::{AppendId, Log, StreamName, Version};
use allstop_task::model::{Artifact, JsonMap};
use allstop_task::{
    ClusterLink, ExecuteError, ExecutorReturn, ListFilter, ReadTaskError, RemovalReport, Task,
    TaskEvent, TaskOptions, TaskParts, TaskRequest, TaskRetention, TaskState,
};

use crate::cluster::line::Line;
use crate::cluster::support::{Cluster, Node, task_when};
use crate::retention::{HOUR, TestClock, TestContexts, older_than, pass, run};
use crate::support::{ScriptedExecutor, endless, request, three_events, user, wait_until};

fn node(
    cluster: &Cluster,
    executor: &ScriptedExecutor,
    concurrency: usize,
    options: TaskOptions,
) -> Node {
    let parts = TaskParts::of(executor.clone());
    cluster.node_at(Line::new(None), parts, concurrency, options)
}

fn in_context(message: &str) -> TaskRequest {
    request(message).context(ContextId::new("c"))
}

async fn indexed(cluster: &Cluster) -> usize {
    let entries = cluster.link.entries("task/").await;
    entries.expect("memory").len()
}

async fn streams(cluster: &Cluster) -> usize {
    let streams = cluster.log.list("task/").await;
    streams.expect("memory").len()
}

/// Waits until no wake-up is left. Before that, a worker may write the entry of a task in the index again.
async fn settled(cluster: &Cluster) {
    wait_until("no wake-up is left", || cluster.link.wake_ups() == 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn removed_task_is_gone_for_every_node() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    let executor = three_events();
    let front = node(&cluster, &executor, 0, clock.options());
    let worker = node(&cluster, &executor, 8, clock.options());
    let old = run(&front.manager, in_context("m1")).await;
    settled(&cluster).await;
    clock.pass(HOUR);
    let recent = run(&front.manager, in_context("m2")).await;
    settled(&cluster).await;
    let contexts = TestContexts::default();
    let retention = TaskRetention {
        contexts: Arc::new(contexts.clone()),
        ..older_than(Duration::from_mins(1))
    };
    let report = pass(&front.manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (1, 0));
    assert_eq!(*contexts.forgotten.lock(), []);
    for manager in [&front.manager, &worker.manager] {
        let read = manager.get(&old).await;
        assert!(matches!(read, Err(ReadTaskError::NotFound(_))), "{read:?}");
        assert!(manager.get(&recent).await.is_ok());
        let page = manager.list(&ListFilter::default(), None, 10).await;
        assert_eq!(page.expect("a list").total, 1);
    }
    assert_eq!((indexed(&cluster).await, streams(&cluster).await), (1, 1));
    clock.pass(HOUR);
    assert_eq!(pass(&worker.manager, &retention).await.removed, 1);
    assert_eq!(*contexts.forgotten.lock(), [ContextId::new("c")]);
    assert_eq!((indexed(&cluster).await, streams(&cluster).await), (0, 0));
    // The context still belongs to its owner.
    let of_bob = in_context("m1").owner("bob");
    let refused = front.manager.execute(of_bob).await;
    assert!(matches!(refused, Err(ExecuteError::ContextOfOther(_))));
    // A repeated message starts its task again.
    let again = run(&front.manager, in_context("m1")).await;
    assert_eq!(again, old);
    settled(&cluster).await;
    assert_eq!((indexed(&cluster).await, streams(&cluster).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn task_with_work_at_its_worker_stays() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    // The executor continues after the end of its task, for at most two seconds.
    let lingers = ScriptedExecutor::new(|cx| async move {
        let done = TaskEvent::state(TaskState::Completed);
        cx.events.write(done).await.expect("it runs");
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        Ok(ExecutorReturn::Finished)
    });
    let front = node(&cluster, &lingers, 0, clock.options());
    let worker = node(&cluster, &lingers, 8, clock.options());
    let sent = front.manager.execute(request("m1")).await;
    let id = sent.expect("accepted").task_id;
    task_when(&front, &id, Task::has_ended).await;
    // The index gets the end of the task after a delay.
    tokio::time::sleep(Duration::from_millis(500)).await;
    clock.pass(HOUR);
    let retention = older_than(Duration::ZERO);
    let report = pass(&front.manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    settled(&cluster).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = pass(&front.manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (1, 0));
    drop(worker);
}

#[tokio::test(start_paused = true)]
async fn running_task_and_context_in_use_stay() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    let executor = endless(false);
    let front = node(&cluster, &executor, 0, clock.options());
    let _worker = node(&cluster, &executor, 8, clock.options());
    let sent = front.manager.execute(in_context("m1")).await;
    let id = sent.expect("accepted").task_id;
    executor.started().await;
    let contexts = TestContexts::default();
    contexts.is_in_use.store(true, Ordering::SeqCst);
    let retention = TaskRetention {
        contexts: Arc::new(contexts.clone()),
        ..older_than(Duration::ZERO)
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    clock.pass(HOUR);
    assert_eq!(pass(&front.manager, &retention).await.removed, 0);
    let stopped = front.manager.cancel(&id, user()).await.expect("it stops");
    assert!(stopped.receipt.quiet());
    settled(&cluster).await;
    clock.pass(HOUR);
    let report = pass(&front.manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert!(front.manager.get(&id).await.is_ok());
    contexts.is_in_use.store(false, Ordering::SeqCst);
    assert_eq!(pass(&front.manager, &retention).await.removed, 1);
}

/// The process that removed the records of a task was killed before it removed the entry of the task.
#[tokio::test(start_paused = true)]
async fn next_pass_completes_an_interrupted_removal() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    let executor = three_events();
    let front = node(&cluster, &executor, 0, clock.options());
    let _worker = node(&cluster, &executor, 8, clock.options());
    let id = run(&front.manager, request("m1")).await;
    settled(&cluster).await;
    let version = front.manager.last_event(&id).await.expect("it exists");
    let stream = vec![(StreamName::new(format!("task/{id}")), version)];
    let gone = cluster.log.delete_unchanged(stream).await;
    assert_eq!(gone.expect("memory").len(), 1);
    let letter = format!("dead/{id}");
    let put = cluster.link.put(&letter, b"x".to_vec(), None, None).await;
    put.expect("memory");
    clock.pass(HOUR);
    assert_eq!(indexed(&cluster).await, 1);
    assert_eq!(pass(&front.manager, &older_than(HOUR / 2)).await.removed, 1);
    assert_eq!(indexed(&cluster).await, 0);
    assert_eq!(cluster.link.entry(&letter).await.expect("memory"), None);
}

/// Two nodes remove the same tasks at the same time.
#[tokio::test(start_paused = true)]
async fn two_passes_at_once_remove_each_task_once() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    let executor = three_events();
    let front = node(&cluster, &executor, 0, clock.options());
    let worker = node(&cluster, &executor, 8, clock.options());
    for number in 0..20 {
        run(&front.manager, request(&format!("m{number}"))).await;
    }
    settled(&cluster).await;
    clock.pass(HOUR);
    let retention = older_than(Duration::ZERO);
    tokio::join!(
        pass(&front.manager, &retention),
        pass(&worker.manager, &retention)
    );
    assert_eq!((indexed(&cluster).await, streams(&cluster).await), (0, 0));
}

/// One process with the flags removes tasks. If it ends, another process continues.
#[tokio::test(start_paused = true)]
async fn one_node_at_a_time_removes_tasks() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.front_end(), cluster.front_end());
    let passes = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let retention = older_than(Duration::from_mins(1));
    let pass_by = |number: usize| {
        let passes = &passes[number];
        move |_report: &RemovalReport| {
            passes.fetch_add(1, Ordering::SeqCst);
        }
    };
    let counts = || [0, 1].map(|number: usize| passes[number].load(Ordering::SeqCst));
    let mut one = Box::pin(first.manager.keep_removing_ended(&retention, pass_by(0)));
    let mut two = Box::pin(second.manager.keep_removing_ended(&retention, pass_by(1)));
    let both = async { tokio::join!(&mut one, &mut two) };
    let time = Duration::from_secs(20);
    tokio::time::timeout(time, both)
        .await
        .expect_err("they repeat");
    assert_eq!(counts(), [4, 0]);
    drop(one);
    tokio::time::timeout(time, two)
        .await
        .expect_err("it repeats");
    assert!(counts()[1] > 0);
}

/// Another process appends between the check and the deletion.
#[tokio::test(start_paused = true)]
async fn task_that_changes_during_its_removal_stays() {
    let (cluster, clock) = (Cluster::new(), TestClock::new());
    let answers = ScriptedExecutor::new(|cx| async move {
        let artifact = allstop_task::model::ArtifactUpdate {
            artifact: Arc::new(Artifact::text("answer", "42")),
            append: false,
            is_last_chunk: true,
            metadata: JsonMap::new(),
        };
        let artifact = TaskEvent::Artifact(artifact);
        cx.events.write(artifact).await.expect("it runs");
        let done = TaskEvent::state(TaskState::Completed);
        cx.events.write(done).await.expect("it runs");
        Ok(ExecutorReturn::Finished)
    });
    let front = node(&cluster, &answers, 0, clock.options());
    let _worker = node(&cluster, &answers, 8, clock.options());
    let id = run(&front.manager, in_context("m1")).await;
    settled(&cluster).await;
    clock.pass(HOUR);
    // The pass deletes the data of the context after it has read the task. The test appends at this moment.
    let (log, stream) = (
        Arc::clone(&cluster.log),
        StreamName::new(format!("task/{id}")),
    );
    let appends = AppendingContexts { log, stream };
    let retention = TaskRetention {
        contexts: Arc::new(appends),
        ..older_than(Duration::ZERO)
    };
    let report = pass(&front.manager, &retention).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert_eq!((indexed(&cluster).await, streams(&cluster).await), (1, 1));
}

struct AppendingContexts {
    log: Arc<allstop_log::MemoryLog>,
    stream: StreamName,
}

impl allstop_task::ContextData for AppendingContexts {
    fn forget(
        &self,
        _context: ContextId,
    ) -> futures::future::BoxFuture<'static, Result<(), allstop_task::ExecutorError>> {
        let (log, stream) = (Arc::clone(&self.log), self.stream.clone());
        Box::pin(async move {
            let records = log.read(&stream, Version(1), 100).await.expect("memory");
            let (version, _) = records.last().expect("a task").clone();
            let late = log.append(&stream, version, AppendId(9), vec!["{}".into()]);
            late.await.expect("it is at this version");
            Ok(())
        })
    }
}
