//! Late receipts. A worker that loses its lease stops its tasks, and writes the receipts of these stops as soon as it
//! can write again.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{CauseKind, TaskId};
use allstop_log::{Log as _, StreamName, Version};
use allstop_task::model::LostExecution;
use allstop_task::{ExecutorError, Task, TaskOptions, TaskParts, TaskState};
use tokio::time::sleep;

use super::line::{Line, LineState};
use super::support::{Cluster, LEASE, Node, task_when};
use crate::support::{ScriptedExecutor, endless, start, user, wait_until};

/// A worker that runs a task while its line (its connection) is cut.
struct CutWorker {
    cluster: Cluster,
    front: Node,
    worker: Node,
    task: TaskId,
}

impl CutWorker {
    async fn new(executor: &ScriptedExecutor) -> Self {
        let (cluster, line) = (Cluster::new(), Line::new(None));
        let front = cluster.front_end();
        let parts = TaskParts::of(executor.clone());
        let worker = cluster.node_at(line.clone(), parts, 8, TaskOptions::default());
        let task = start(&front.manager, executor).await.task_id;
        line.set(LineState::Cut);
        Self {
            cluster,
            front,
            worker,
            task,
        }
    }

    async fn has_ended(&self) -> Arc<Task> {
        task_when(&self.front, &self.task, Task::has_ended).await
    }

    /// Reopens the line, and waits until the worker has written its receipt. Returns the task.
    async fn has_delivered(&self) -> Arc<Task> {
        self.worker.line.set(LineState::Open);
        let is_there = |lost: &LostExecution| lost.receipt.is_some();
        let delivered = |task: &Task| task.lost.iter().any(is_there);
        task_when(&self.front, &self.task, delivered).await
    }

    /// Types of the records that follow a version.
    async fn records_after(&self, version: Version) -> Vec<String> {
        let stream = StreamName::new(format!("task/{}", self.task));
        let read = self.cluster.log.read(&stream, version.next(), 100).await;
        let read = read.expect("it works").into_iter();
        let json = |bytes: &[u8]| serde_json::from_slice(bytes).expect("JSON");
        let types = read.map(|(_, bytes)| {
            let record: serde_json::Value = json(&bytes);
            record["type"].as_str().unwrap_or_default().to_owned()
        });
        types.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn receipt_of_a_lost_worker_becomes_the_receipt_of_the_end() {
    let executor = endless(false);
    let cut = CutWorker::new(&executor).await;
    let _other = cut.cluster.worker(&executor);
    let before = cut.has_ended().await;
    let end = cut.front.manager.last_event(&cut.task).await.unwrap();
    assert_eq!(before.status.state, TaskState::Failed);
    assert_eq!(before.ending.receipt, None);
    let after = cut.has_delivered().await;
    let receipt = after.ending.receipt.as_ref().expect("the worker lives");
    assert_eq!(receipt.cause().kind, CauseKind::LeaseLost);
    assert!(receipt.quiet() && receipt.items().len() == 1, "{receipt:?}");
    // Except for the receipt, the task is unchanged, and no further record follows.
    assert_eq!((&after.status, after.epoch), (&before.status, before.epoch));
    assert_eq!(after.ending.cause, before.ending.cause);
    assert_eq!(after.ending.error, before.ending.error);
    sleep(5 * LEASE).await;
    assert_eq!(cut.records_after(end).await, ["late_receipt"]);
    let answer = cut.front.manager.cancel(&cut.task, user()).await;
    assert!(answer.is_err(), "a stop that came too late: {answer:?}");
    // A client that has read everything up to the end also gets the record with the receipt. Then its subscription
    // ends.
    let events = cut.front.manager.subscribe(&cut.task, Some(end)).await;
    assert_eq!(
        crate::support::rest(&mut events.unwrap()).await,
        ["late receipt 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn receipt_that_comes_before_the_end_belongs_to_it() {
    let executor = endless(false);
    let cut = CutWorker::new(&executor).await;
    wait_until("its work is stopped", || executor.live() == 0).await;
    // The process of this worker first writes its receipt, and then takes the task over again.
    let before = cut.has_delivered().await;
    assert!(before.is_executing && before.ending.receipt.is_none());
    let after = cut.has_ended().await;
    assert_eq!(after.ending.receipt, after.lost[0].receipt);
    assert_eq!((after.status.state, after.epoch), (TaskState::Failed, 2));
}

/// The second executor behaves like an agent: it can find out what happened to a turn, but cannot repeat the turn.
#[tokio::test(start_paused = true)]
async fn receipt_belongs_to_an_end_by_an_executor_that_cannot_go_on() {
    let first = endless(false);
    let cut = CutWorker::new(&first).await;
    let second = ScriptedExecutor::new(|cx| async move {
        assert!(cx.is_resumed);
        Err(ExecutorError::of_crash("the turn is lost"))
    });
    let _other = cut.cluster.worker(&second.resumable());
    let before = cut.has_ended().await;
    assert_eq!(before.ending.error.as_deref(), Some("the turn is lost"));
    let after = cut.has_delivered().await;
    let receipt = after.ending.receipt.as_ref().expect("the worker lives");
    assert_eq!(receipt.cause().kind, CauseKind::LeaseLost);
}

#[tokio::test(start_paused = true)]
async fn late_receipt_is_not_that_of_a_task_that_runs_again() {
    let executor = endless(false).resumable();
    let cut = CutWorker::new(&executor).await;
    let _other = cut.cluster.worker(&executor);
    executor.started().await;
    let running = cut.has_delivered().await;
    // A record from another worker must not disturb the worker that owns the task.
    sleep(LEASE).await;
    assert_eq!((executor.live(), running.epoch), (1, 2));
    assert!(running.is_executing && running.ending.receipt.is_none());
    assert_eq!(running.lost[0].epoch, 1);
    let stopped = cut.front.manager.cancel(&cut.task, user()).await.unwrap();
    assert_eq!(stopped.receipt.cause().kind, CauseKind::User);
    assert_eq!(stopped.task.ending.receipt, Some(stopped.receipt));
}

#[tokio::test(start_paused = true)]
async fn late_receipt_does_not_replace_the_receipt_of_a_stop() {
    let executor = endless(false);
    let cut = CutWorker::new(&executor).await;
    let _other = cut.cluster.worker(&executor);
    // The stop is requested while the worker cannot be reached.
    drop(cut.front.manager.cancel(&cut.task, user()).await);
    let before = cut.has_ended().await;
    assert_eq!(before.status.state, TaskState::Canceled);
    let after = cut.has_delivered().await;
    assert_eq!(after.ending, before.ending);
    let receipt = after.ending.receipt.as_ref().unwrap();
    assert!(!receipt.quiet(), "nobody had seen the end of the work");
}

#[tokio::test(start_paused = true)]
async fn receipt_of_a_stop_in_vain_is_delivered() {
    let executor = endless(false);
    let cut = CutWorker::new(&executor).await;
    // The worker stops the task by itself but cannot write the end.
    let stopping = cut.worker.manager.cancel(&cut.task, user());
    let (stopped, _other) = tokio::join!(stopping, async {
        wait_until("its work is stopped", || executor.live() == 0).await;
        let other = cut.cluster.worker(&executor);
        cut.has_ended().await;
        other
    });
    assert!(stopped.is_err(), "{stopped:?}");
    let task = cut.has_delivered().await;
    let receipt = task.ending.receipt.as_ref().unwrap();
    assert_eq!(receipt.cause().kind, CauseKind::User);
}

#[tokio::test(start_paused = true)]
async fn manager_that_has_shut_down_writes_no_receipt() {
    let executor = endless(false);
    let cut = CutWorker::new(&executor).await;
    wait_until("its work is stopped", || executor.live() == 0).await;
    sleep(LEASE).await;
    let within = Duration::from_secs(1);
    drop(cut.worker.manager.shutdown(within, "test").await);
    let end = cut.front.manager.last_event(&cut.task).await.unwrap();
    cut.worker.line.set(LineState::Open);
    sleep(2 * LEASE).await;
    assert_eq!(cut.records_after(end).await, Vec::<String>::new());
}
