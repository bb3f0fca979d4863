//! Workers that end, are suspended, or lose their connection.

use std::time::Duration;

use allstop_core::receipt::ItemState;
use allstop_core::{CauseKind, TaskId};
use allstop_task::{DeadLetterRetryError, ExecutionCx, ExecutorReturn, TaskEvent, TaskState};
use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::support::{Cluster, LEASE, task_when};
use crate::support::{
    ScriptedExecutor, ended, endless, request, start, three_events, user, wait_until,
};

/// Executor that waits at its first run. When it is resumed, it completes the task.
fn completes_when_resumed() -> ScriptedExecutor {
    ScriptedExecutor::new(|cx: ExecutionCx| async move {
        if !cx.is_resumed {
            cx.scope.stopped_at("waiting").await;
            return Ok(ExecutorReturn::Finished);
        }
        let end = TaskEvent::state(TaskState::Completed);
        cx.events.write(end).await.expect("it runs");
        Ok(ExecutorReturn::Finished)
    })
    .resumable()
}

#[tokio::test(start_paused = true)]
async fn task_of_a_killed_worker_resumes_within_a_lease_and_1_s() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), completes_when_resumed());
    let (first, _second) = (cluster.worker(&executor), cluster.front_end());
    let accepted = start(&front.manager, &executor).await;
    let _successor = cluster.worker(&executor);
    sleep(Duration::from_secs(1)).await;
    first.kill().await;
    let killed_at = Instant::now();
    let task = task_when(&front, &accepted.task_id, allstop_task::Task::has_ended).await;
    assert_eq!((task.status.state, task.epoch), (TaskState::Completed, 2));
    let took = killed_at.elapsed();
    assert!(took <= LEASE + Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn task_that_cannot_be_resumed_fails_as_a_crash() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let first = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    let _successor = cluster.worker(&executor);
    first.kill().await;
    let task = task_when(&front, &accepted.task_id, allstop_task::Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.ending.cause.as_ref().unwrap().kind, CauseKind::Failure);
}

#[tokio::test(start_paused = true)]
async fn live_worker_keeps_its_task_for_many_leases() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let _workers = [cluster.worker(&executor), cluster.worker(&executor)];
    let accepted = start(&front.manager, &executor).await;
    sleep(10 * LEASE).await;
    let task = front.manager.get(&accepted.task_id).await.unwrap();
    assert_eq!((task.epoch, executor.live()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn worker_that_gives_its_lease_back_leaves_nothing_to_wait_for() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    let report = worker
        .manager
        .shutdown(Duration::from_secs(5), "test")
        .await;
    assert_eq!((report.receipts.len(), report.not_stored), (1, 0));
    let task = front.manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(
        task.ending.cause.as_ref().unwrap().kind,
        CauseKind::Shutdown
    );
    assert!(front.manager.workers().await.unwrap().is_empty());
}

/// Regression: the list of workers showed a worker that drains as working until the next renewal of its lease.
#[tokio::test(start_paused = true)]
async fn drain_is_listed_at_once() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let worker = cluster.worker(&executor);
    start(&front.manager, &executor).await;
    sleep(LEASE).await;
    let is_draining = async || front.manager.workers().await.unwrap()[0].is_draining;
    assert!(!is_draining().await);
    let began = Instant::now();
    let draining = async {
        while !is_draining().await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = worker.manager.drain() => panic!("its task has ended"),
        () = draining => {}
    }
    assert!(began.elapsed() < LEASE / 100, "{:?}", began.elapsed());
}

/// A worker shuts down. Another worker continues its task at once, and the receipt is in the log.
#[tokio::test(start_paused = true)]
async fn shutdown_hands_a_resumable_task_over() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), completes_when_resumed());
    let first = cluster.worker(&executor);
    let mut accepted = start(&front.manager, &executor).await;
    let report = first.manager.shutdown(LEASE, "an update").await;
    assert_eq!((report.handed_over, report.stopped()), (1, 0));
    assert_eq!((report.left_running(), report.not_stored), (0, 0));
    let task = task_when(&front, &accepted.task_id, |task| task.handed_over.is_some()).await;
    assert!(task.awaits_execution && !task.is_executing);
    assert!(task.handed_over.as_ref().unwrap().quiet());
    let _second = cluster.worker(&executor);
    let began = Instant::now();
    let task = ended(&front.manager, &mut accepted).await;
    assert_eq!((task.status.state, task.epoch), (TaskState::Completed, 2));
    assert_eq!((task.take_overs, &*task.lost), (0, &[][..]));
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
}

/// A stop arrives before the shutdown, or after the hand-over. The task is cancelled in both cases.
#[tokio::test(start_paused = true)]
async fn stopped_task_is_not_handed_over() {
    for stops_first in [true, false] {
        let cluster = Cluster::new();
        let (front, executor) = (cluster.front_end(), endless(false).resumable());
        let first = cluster.worker(&executor);
        let accepted = start(&front.manager, &executor).await;
        let stopping = async {
            if !stops_first {
                task_when(&front, &accepted.task_id, |task| task.handed_over.is_some()).await;
            }
            front.manager.cancel(&accepted.task_id, user()).await
        };
        let closing = async {
            if stops_first {
                let is_requested = |task: &allstop_task::Task| task.stop_requested.is_some();
                task_when(&front, &accepted.task_id, is_requested).await;
            }
            first.manager.shutdown(LEASE, "an update").await
        };
        let (outcome, report) = tokio::join!(stopping, closing);
        assert_eq!(report.handed_over, usize::from(!stops_first));
        drop(outcome);
        let _second = cluster.worker(&executor);
        let task = task_when(&front, &accepted.task_id, allstop_task::Task::has_ended).await;
        assert_eq!(task.status.state, TaskState::Canceled);
        assert_eq!(task.ending.cause.as_ref().unwrap().kind, CauseKind::User);
    }
}

#[tokio::test(start_paused = true)]
async fn task_that_ends_worker_after_worker_becomes_a_dead_letter() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let executor = endless(false).resumable();
    let mut worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    for _ in 0..5 {
        let next = cluster.worker(&executor);
        sleep(Duration::from_secs(1)).await;
        std::mem::replace(&mut worker, next).kill().await;
        executor.started().await;
    }
    let _last = cluster.worker(&executor);
    worker.kill().await;
    let task = task_when(&front, &accepted.task_id, allstop_task::Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(task.ending.lost_execution, Some(task.epoch));
    assert_eq!(task.lost.len(), 6);
    let letters = front.manager.dead_letters().await.unwrap();
    assert_eq!((letters.len(), &letters[0].task), (1, &task.id));
    // A new task repeats the work once.
    let again = front.manager.retry_dead_letter(&task.id).await.unwrap();
    executor.started().await;
    assert_eq!(
        front.manager.retry_dead_letter(&task.id).await.unwrap(),
        again
    );
    let retried = front.manager.get(&again).await.unwrap();
    assert_eq!(retried.context_id, task.context_id);
    assert_eq!(retried.history[0].parts, task.history[0].parts);
    assert_eq!(executor.live(), 1);
    let letters = front.manager.dead_letters().await.unwrap();
    assert_eq!(letters[0].again_as, Some(again));
    let other = front.manager.retry_dead_letter(&TaskId::new("other")).await;
    assert!(matches!(other, Err(DeadLetterRetryError::NotSetAside(_))));
}

#[tokio::test(start_paused = true)]
async fn task_that_waits_for_its_next_attempt_can_be_stopped() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let executor = endless(false).resumable();
    let mut worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    for attempt in 2..=3 {
        let next = cluster.worker(&executor);
        sleep(Duration::from_secs(1)).await;
        std::mem::replace(&mut worker, next).kill().await;
        let is_claimed = |task: &allstop_task::Task| task.epoch == attempt;
        task_when(&front, &accepted.task_id, is_claimed).await;
    }
    assert_eq!(executor.live(), 0, "the third attempt waits");
    let outcome = front.manager.cancel(&accepted.task_id, user()).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(
        !outcome.receipt.quiet(),
        "nobody has seen the end of the second attempt"
    );
    assert_eq!((executor.live(), outcome.task.epoch), (0, 3));
}

/// No worker is left. The front end ends the lease of the lost worker, and only ends tasks whose stop is requested.
#[tokio::test(start_paused = true)]
async fn front_end_settles_the_stops_of_a_lost_worker_without_any_worker() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.settling_front_end(), endless(false));
    let worker = cluster.worker(&executor);
    let [recorded, later] = [request("m1"), request("m2")].map(|request| {
        let (manager, executor) = (front.manager.clone(), executor.clone());
        async move {
            let live = executor.live();
            let accepted = manager.execute(request).await.unwrap();
            wait_until("it runs", || executor.live() > live).await;
            accepted.task_id
        }
    });
    let (recorded, later) = (recorded.await, later.await);
    worker.kill().await;
    let task = front.manager.get(&recorded).await.unwrap();
    assert!(!front.manager.waits_for_take_over(&task));
    // The request is recorded before the lease ends.
    let answer = front.manager.cancel(&recorded, user());
    let answer = timeout(LEASE / 2, answer).await;
    assert!(answer.is_err(), "{answer:?}");
    let settled = task_when(&front, &recorded, allstop_task::Task::has_ended).await;
    sleep(2 * LEASE).await;
    assert!(front.manager.workers().await.unwrap().is_empty());
    let task = front.manager.get(&later).await.unwrap();
    assert_eq!(
        task.status.state,
        TaskState::Working,
        "the front end cannot resume it"
    );
    assert!(front.manager.waits_for_take_over(&task));
    let stopped = front.manager.cancel(&later, user()).await.unwrap();
    assert_eq!(executor.live(), 0);
    for task in [settled, stopped.task] {
        assert_eq!(task.status.state, TaskState::Canceled);
        let receipt = task.ending.receipt.as_ref().unwrap();
        assert!(!receipt.quiet(), "{receipt:?}");
        let item = &receipt.items()[0];
        assert!(matches!(item.state, ItemState::Unreachable { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_task_runs_at_the_first_worker_although_a_front_end_settles() {
    let cluster = Cluster::new();
    let front = cluster.settling_front_end();
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    sleep(Duration::from_mins(10)).await;
    let _worker = cluster.worker(&three_events());
    let task = ended(&front.manager, &mut accepted).await;
    assert_eq!((task.status.state, task.epoch), (TaskState::Completed, 1));
}

/// Several nodes end the stopped task of a lost worker at the same time. No node counts as a lost worker of the task.
#[tokio::test(start_paused = true)]
async fn stopped_task_of_a_lost_worker_ends_once_at_several_front_ends() {
    let cluster = Cluster::new();
    let fronts = [(); 4].map(|()| cluster.settling_front_end());
    let executor = endless(false);
    let worker = cluster.worker(&executor);
    let accepted = start(&fronts[0].manager, &executor).await;
    let id = &accepted.task_id;
    worker.kill().await;
    sleep(2 * LEASE).await;
    let stops = fronts.iter().map(|front| front.manager.cancel(id, user()));
    let outcomes = join_all(stops).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    let first = &outcomes[0];
    assert_eq!((first.task.epoch, first.task.take_overs), (1, 0));
    for outcome in &outcomes {
        assert!(!outcome.receipt.quiet());
        assert_eq!(outcome.receipt.stop_id(), first.receipt.stop_id());
    }
}
