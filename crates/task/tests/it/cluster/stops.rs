//! Stops from any node. The stopped task has no owner yet, is being claimed, runs on another node, is at rest, or has
//! lost its worker.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, NothingToStop, ReceiptItem};
use allstop_core::{Cause, CauseKind, Extent, Receipt, TaskId};
use allstop_scope::{RootOptions, Scope, StopRequest};
use allstop_task::{
    CancelCx, CancelError, Canceler, ExecutionCx, Executor, ExecutorError, ExecutorReturn,
    StopDelivery, Task, TaskParts, TaskState,
};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::task::yield_now;

use super::support::{Cluster, LEASE, task_when};
use crate::support::{
    ScriptedExecutor, ended, endless, request, rest, start, three_events, user, wait_until, writes,
};

#[tokio::test(start_paused = true)]
async fn stop_at_another_node_returns_the_owners_receipt() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let _worker = cluster.worker(&executor);
    let mut accepted = start(&front.manager, &executor).await;
    let outcome = front
        .manager
        .cancel(&accepted.task_id, user())
        .await
        .unwrap();
    assert_eq!(executor.live(), 0, "the work is gone before the answer");
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet() && outcome.receipt.cancel_observed());
    assert_eq!(outcome.receipt.items()[0].name.as_ref(), "executor");
    let words = rest(&mut accepted.subscription).await;
    assert!(words.contains(&"stop requested".to_owned()), "{words:?}");
    assert_eq!(words.last().unwrap(), "ended canceled");
}

#[tokio::test(start_paused = true)]
async fn deaf_work_at_another_node_does_not_delay_the_answer() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(true));
    let _worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    let begun = tokio::time::Instant::now();
    let outcome = front
        .manager
        .cancel(&accepted.task_id, user())
        .await
        .unwrap();
    assert!(outcome.receipt.quiet() && executor.live() == 0);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn stop_before_any_worker_has_the_task_ends_it_for_all() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let outcome = front
        .manager
        .cancel(&accepted.task_id, user())
        .await
        .unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    let executor = three_events();
    let worker = cluster.worker(&executor);
    wait_until("its wake-up is taken away", || cluster.link.wake_ups() == 0).await;
    let task = worker.manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.ending.cause.as_ref().unwrap().kind, CauseKind::User);
    assert_eq!(task.epoch, 1, "no worker has run it");
}

/// The stop comes a number of runtime turns after the message. The test tries every number, so the stop also comes
/// during the claim.
#[tokio::test(start_paused = true)]
async fn stop_at_every_moment_of_a_claim_ends_the_task_once() {
    for turns in 0..120 {
        let cluster = Cluster::new();
        let (front, executor) = (cluster.front_end(), endless(false));
        let worker = cluster.worker(&executor);
        // By this time, the worker has its lease.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut accepted = front.manager.execute(request("m1")).await.unwrap();
        for _ in 0..turns {
            yield_now().await;
        }
        let outcome = front
            .manager
            .cancel(&accepted.task_id, user())
            .await
            .unwrap();
        assert_eq!(
            outcome.task.status.state,
            TaskState::Canceled,
            "after {turns}"
        );
        assert_eq!(executor.live(), 0, "after {turns}");
        let words = rest(&mut accepted.subscription).await;
        let ends = words
            .iter()
            .filter(|word| word.starts_with("ended"))
            .count();
        assert_eq!(ends, 1, "after {turns}: {words:?}");
        worker.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn stops_at_two_nodes_are_one_stop() {
    let cluster = Cluster::new();
    let (one, two, executor) = (cluster.front_end(), cluster.front_end(), endless(false));
    let _worker = cluster.worker(&executor);
    let accepted = start(&one.manager, &executor).await;
    let id = &accepted.task_id;
    let stops = [&one, &two, &one, &two].map(|node| node.manager.cancel(id, user()));
    let outcomes: Vec<_> = join_all(stops)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let first = outcomes[0].receipt.stop_id();
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.receipt.stop_id() == first)
    );
    let late = two.manager.cancel(id, user()).await.unwrap();
    assert_eq!(late.receipt.outcome(), Some(NothingToStop::AlreadyEnded));
    assert_eq!(late.receipt.stop_id(), first);
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_completed_task_reports_already_ended() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let _worker = cluster.worker(&three_events());
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    ended(&front.manager, &mut accepted).await;
    let late = front.manager.cancel(&accepted.task_id, user()).await;
    assert!(matches!(late, Err(CancelError::AlreadyEnded(_))));
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_lost_worker_is_kept_and_its_receipt_claims_nothing() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    let id = accepted.task_id.clone();
    // The request is written to the log. A second worker finds the request after the lease of the first worker has
    // expired.
    worker.kill().await;
    let answer = front.manager.cancel(&id, user()).await;
    let Err(CancelError::NotYet { delivery, .. }) = answer else {
        panic!("nobody can have ended it: {answer:?}");
    };
    assert_eq!(delivery, StopDelivery::Queued);
    let _successor = cluster.worker(&executor);
    let task = task_when(&front, &id, allstop_task::Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    let receipt = task.ending.receipt.as_ref().unwrap();
    assert!(
        !receipt.quiet() && !receipt.cancel_observed(),
        "{receipt:?}"
    );
    assert_eq!(executor.live(), 0, "it did not run again");
    let late = front.manager.cancel(&id, user()).await.unwrap();
    assert_eq!(late.receipt.outcome(), Some(NothingToStop::Ending));
    assert!(!late.receipt.quiet(), "nobody has seen its end since");
}

/// A canceler that refuses every stop.
struct Refuses;

impl Canceler for Refuses {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        async { Err(ExecutorError::new("not now")) }.boxed()
    }
}

fn asking(canceler: Option<Arc<dyn Canceler>>) -> TaskParts {
    let executor = writes(allstop_task::TaskEvent::state(TaskState::InputRequired));
    let mut parts = TaskParts::of(executor);
    parts.canceler = canceler;
    parts
}

#[tokio::test(start_paused = true)]
async fn resting_task_is_ended_by_its_worker() {
    let cluster = Cluster::new();
    let (front, _worker) = (cluster.front_end(), cluster.node(asking(None), 8));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    ended(&front.manager, &mut accepted).await;
    let outcome = front
        .manager
        .cancel(&accepted.task_id, user())
        .await
        .unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet());
}

#[tokio::test(start_paused = true)]
async fn refusal_of_the_worker_leaves_a_resting_task_open() {
    let cluster = Cluster::new();
    let parts = asking(Some(Arc::new(Refuses)));
    let (front, _worker) = (cluster.front_end(), cluster.node(parts, 8));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    ended(&front.manager, &mut accepted).await;
    let answer = front.manager.cancel(&accepted.task_id, user()).await;
    assert!(matches!(answer, Err(CancelError::Refused(_))), "{answer:?}");
    let task = front.manager.get(&accepted.task_id).await.unwrap();
    assert!(!task.has_ended() && task.stop_requested.is_none());
}

#[tokio::test(start_paused = true)]
async fn preview_comes_from_the_owner() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let _worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    let preview = front
        .manager
        .preview(&accepted.task_id, user())
        .await
        .unwrap();
    assert!(preview.is_preview());
    assert_eq!(preview.items()[0].name.as_ref(), "executor");
    let still_there = ScriptedExecutor::live(&executor);
    assert_eq!(still_there, 1);
}

/// A canceler that answers a stop of orphaned work (work that outlives its task) with this receipt. Without a receipt,
/// the canceler panics.
struct LeavesWork(Option<Arc<Receipt>>);

impl Canceler for LeavesWork {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        async { Ok(()) }.boxed()
    }

    fn stop_orphans(&self, _: Arc<Task>, _: Cause) -> BoxFuture<'static, Option<Arc<Receipt>>> {
        let receipt = self.0.clone();
        async move { Some(receipt.expect("a bug of the embedding program")) }.boxed()
    }
}

/// A canceler that cannot list orphaned work: it panics, or never answers.
struct ListsNothing {
    panics: bool,
}

impl Canceler for ListsNothing {
    fn cancel(&self, _cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>> {
        async { Ok(()) }.boxed()
    }

    fn preview_orphans(&self, _: Arc<Task>) -> BoxFuture<'static, Vec<ReceiptItem>> {
        assert!(!self.panics, "a bug of the embedding program");
        std::future::pending().boxed()
    }
}

/// The worker of an ended task does not answer. Regression: the answer to a stop was that the task had ended, so no work
/// seemed to be left.
#[tokio::test(start_paused = true)]
async fn stop_of_an_ended_task_of_a_silent_worker_claims_nothing() {
    let cluster = Cluster::new();
    let (front, worker) = (cluster.front_end(), cluster.worker(&three_events()));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let task = ended(&front.manager, &mut accepted).await;
    worker.kill().await;
    let stopped = front.manager.cancel(&task.id, user()).await;
    let stopped = stopped.expect("a receipt").receipt;
    let preview = front.manager.preview(&task.id, user()).await.unwrap();
    for receipt in [&*stopped, &preview] {
        let [item] = receipt.items() else {
            panic!("{receipt:?}");
        };
        assert_eq!(item.state.as_str(), "unreachable");
        assert!(!receipt.quiet());
    }
}

/// The task ended because its worker was lost, so the work of the worker has no confirmed end. Regression: the preview
/// claimed that nothing runs.
#[tokio::test(start_paused = true)]
async fn preview_of_a_task_of_a_lost_worker_claims_nothing() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    worker.kill().await;
    let successor = cluster.worker(&executor);
    let task = task_when(&front, &accepted.task_id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Failed);
    for node in [&front, &successor] {
        let preview = node.manager.preview(&task.id, user()).await.unwrap();
        assert!(preview.is_preview() && !preview.quiet(), "{preview:?}");
        assert_eq!(preview.outcome(), Some(NothingToStop::Ending));
        let [item] = preview.items() else {
            panic!("{preview:?}");
        };
        assert_eq!(item.name.as_ref(), "worker of the task before");
    }
}

#[tokio::test(start_paused = true)]
async fn preview_without_a_list_of_left_work_claims_nothing() {
    for panics in [true, false] {
        let cluster = Cluster::new();
        let parts = TaskParts::of(three_events()).canceler(ListsNothing { panics });
        let node = cluster.node(parts, 8);
        let mut accepted = node.manager.execute(request("m1")).await.unwrap();
        let task = ended(&node.manager, &mut accepted).await;
        let preview = node.manager.preview(&task.id, user()).await.unwrap();
        assert!(preview.is_preview() && !preview.quiet(), "{preview:?}");
        let [item] = preview.items() else {
            panic!("{preview:?}");
        };
        let unknown = NotStoppedReason::WatcherGone;
        assert_eq!(item.state, ItemState::Unreachable { why: unknown });
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_task_is_stopped_by_its_worker() {
    let elsewhere = Scope::root("elsewhere", RootOptions::single_runtime());
    let receipt = elsewhere.stop(StopRequest::new(Extent::Subtree, user()));
    let receipt = receipt.receipt().await;
    for left in [Some(receipt), None] {
        let cluster = Cluster::new();
        let parts = TaskParts::of(three_events()).canceler(LeavesWork(left.clone()));
        let (front, worker) = (cluster.front_end(), cluster.node(parts, 8));
        let mut accepted = front.manager.execute(request("m1")).await.unwrap();
        let task = ended(&front.manager, &mut accepted).await;
        assert_eq!(task.status.state, TaskState::Completed);
        for node in [&front, &worker] {
            // The worker answers. Its executor lists no work.
            let preview = node.manager.preview(&task.id, user()).await.unwrap();
            assert_eq!(preview.outcome(), Some(NothingToStop::AlreadyEnded));
            match (node.manager.cancel(&task.id, user()).await, &left) {
                (Ok(stopped), Some(left)) => {
                    assert_eq!(stopped.receipt, *left);
                    assert!(stopped.covers_orphans());
                }
                // Regression: the answer was that the task had ended, so no work seemed to be left.
                (Ok(stopped), None) => {
                    let receipt = &stopped.receipt;
                    assert!(!receipt.quiet(), "{receipt:?}");
                    assert_eq!(receipt.outcome(), Some(NothingToStop::Ending));
                    assert_eq!(receipt.items()[0].state.as_str(), "unreachable");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The turn of a waiting task may still exist at its lost worker, for example with background work.
#[tokio::test(start_paused = true)]
async fn stop_of_a_waiting_task_of_a_lost_worker_claims_nothing() {
    for ends_at_front_end in [true, false] {
        let cluster = Cluster::new();
        let (front, worker) = (cluster.front_end(), cluster.node(asking(None), 8));
        let mut accepted = front.manager.execute(request("m1")).await.unwrap();
        ended(&front.manager, &mut accepted).await;
        worker.kill().await;
        let successor = cluster.node(asking(None), 8);
        if ends_at_front_end {
            // The successor ends the lease of the lost worker.
            tokio::time::sleep(2 * LEASE).await;
        }
        let stopped = front.manager.cancel(&accepted.task_id, user()).await;
        let receipt = match stopped {
            Ok(outcome) => outcome.receipt,
            Err(CancelError::NotYet { .. }) if !ends_at_front_end => {
                let task = task_when(&front, &accepted.task_id, Task::has_ended).await;
                Arc::clone(task.ending.receipt.as_ref().unwrap())
            }
            Err(error) => panic!("{error:?}"),
        };
        assert!(!receipt.quiet() && !receipt.cancel_observed());
        let item = &receipt.items()[0];
        assert_eq!(item.name.as_ref(), "worker of the task before");
        let lost = NotStoppedReason::WatcherGone;
        assert_eq!(item.state, ItemState::Unreachable { why: lost });
        successor.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn stop_of_a_waiting_task_of_a_closed_worker_is_quiet() {
    let cluster = Cluster::new();
    let (front, worker) = (cluster.front_end(), cluster.node(asking(None), 8));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    ended(&front.manager, &mut accepted).await;
    let shutdown = worker.manager.shutdown(LEASE, "an orderly end");
    assert_eq!(shutdown.await.not_stored, 0);
    let outcome = front.manager.cancel(&accepted.task_id, user()).await;
    let receipt = outcome.unwrap().receipt;
    assert!(receipt.quiet() && receipt.items().is_empty(), "{receipt:?}");
}

/// An executor that asks a question, and keeps work for the answer.
struct WaitsWithWork;

impl Executor for WaitsWithWork {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        asking(None).executor.execute(cx)
    }

    fn preview(&self, _task: &TaskId) -> Vec<ReceiptItem> {
        let state = ItemState::StillRunning {
            why: NotStoppedReason::NotAcknowledged,
        };
        vec![ReceiptItem::new(
            ItemKind::ToolCall,
            "call",
            "deploy",
            state,
        )]
    }
}

#[tokio::test(start_paused = true)]
async fn preview_of_a_waiting_task_comes_from_its_worker() {
    let cluster = Cluster::new();
    let (front, worker) = (
        cluster.front_end(),
        cluster.node(TaskParts::of(WaitsWithWork), 8),
    );
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let id = accepted.task_id.clone();
    ended(&front.manager, &mut accepted).await;
    let at_front = front.manager.preview(&id, user()).await.unwrap();
    let at_worker = worker.manager.preview(&id, user()).await.unwrap();
    assert!(at_front.is_preview());
    assert_eq!(at_front.items(), at_worker.items());
    assert_eq!(at_front.items()[0].name.as_ref(), "deploy");
    // A lost worker does not answer, and a stop would find no proof of the end of its work.
    worker.kill().await;
    let lost = front.manager.preview(&id, user()).await.unwrap();
    assert!(
        matches!(lost.items()[0].state, ItemState::Unreachable { .. }),
        "{lost:?}"
    );
}
