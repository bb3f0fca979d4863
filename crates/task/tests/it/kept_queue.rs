//! A manager that shuts down and keeps the queue: the next manager of the store runs the waiting tasks.

use std::sync::Arc;

use allstop_core::TaskId;
use allstop_log::{Log, MemoryLog};
use allstop_task::{SubscriptionItem, TaskManager, TaskOptions, TaskParts, TaskState};

use futures::FutureExt as _;

use crate::support::{
    SOON, ScriptedExecutor, ended, endless, follow_up, manager_over, request, start, three_events,
    user, writes,
};

fn options() -> TaskOptions {
    TaskOptions::default().running_max(1).keeps_queue(true)
}

async fn open(log: &Arc<dyn Log>, executor: ScriptedExecutor) -> TaskManager {
    manager_over(Arc::clone(log), TaskParts::of(executor), options()).await
}

async fn state(manager: &TaskManager, id: &TaskId) -> TaskState {
    manager.get(id).await.expect("a task").status.state
}

/// Opens the store with an executor that ends, and waits for the end of each task.
async fn assert_all_run(log: &Arc<dyn Log>, tasks: &[&TaskId]) {
    let next = open(log, three_events()).await;
    for id in tasks {
        let mut subscription = next.subscribe(id, None).await.expect("a task");
        while let Some(item) = subscription.next().await {
            item.expect("it can be read");
        }
        assert_eq!(state(&next, id).await, TaskState::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_leaves_waiting_tasks_to_the_next_manager() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let executor = endless(false);
    let manager = open(&log, executor.clone()).await;
    let running = start(&manager, &executor).await;
    let mut first = manager.execute(request("m2")).await.expect("accepted");
    let second = manager.execute(request("m3")).await.expect("accepted");
    // A webhook subscribes to the task, and not to its execution. The subscription continues after the restart.
    let whole = manager.subscribe(&second.task_id, None).await;
    let mut whole = whole.expect("a task");
    let _snapshot = whole.next().await;
    let report = manager.shutdown(SOON, "sigterm").await;
    assert_eq!((report.stopped(), report.kept_waiting), (1, 2));
    assert_eq!((report.receipts.len(), report.not_stored), (1, 0));
    assert_eq!(state(&manager, &running.task_id).await, TaskState::Canceled);
    // A client that waits learns that the task has not started.
    let snapshot = first.subscription.next().await;
    assert!(matches!(snapshot, Some(Ok(SubscriptionItem::Snapshot(..)))));
    assert!(first.subscription.next().await.is_none());
    assert!(whole.next().now_or_never().is_none(), "the task has no end");
    drop(whole);
    for id in [&first.task_id, &second.task_id] {
        let task = manager.get(id).await.expect("a task");
        assert_eq!(task.status.state, TaskState::Submitted);
        assert!(task.awaits_execution && !task.is_executing);
    }
    drop(manager);
    assert_all_run(&log, &[&first.task_id, &second.task_id]).await;
}

#[tokio::test(start_paused = true)]
async fn drain_starts_no_waiting_task() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let executor = endless(false);
    let manager = open(&log, executor.clone()).await;
    let running = start(&manager, &executor).await;
    let waiting = manager.execute(request("m2")).await.expect("accepted");
    let stopped = manager.execute(request("m3")).await.expect("accepted");
    let mut drain = Box::pin(manager.drain());
    assert!((&mut drain).now_or_never().is_none(), "a task runs");
    // The drain waits for the running task only, and a stop of a waiting task still ends this task.
    let outcome = manager.cancel(&stopped.task_id, user()).await;
    assert_eq!(
        outcome.expect("stopped").task.status.state,
        TaskState::Canceled
    );
    let _outcome = manager.cancel(&running.task_id, user()).await;
    drain.await;
    assert_eq!(executor.live(), 0);
    assert_eq!(
        state(&manager, &waiting.task_id).await,
        TaskState::Submitted
    );
    let report = manager.shutdown(SOON, "sigterm").await;
    assert_eq!((report.stopped(), report.kept_waiting), (0, 1));
    drop(manager);
    assert_all_run(&log, &[&waiting.task_id]).await;
}

/// The message of a client that answers a question waits like a new task.
#[tokio::test(start_paused = true)]
async fn waiting_answer_of_a_client_is_kept() {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let asking = writes(allstop_task::TaskEvent::state(TaskState::InputRequired));
    let manager = open(&log, asking).await;
    let mut asked = manager.execute(request("m0")).await.expect("accepted");
    ended(&manager, &mut asked).await;
    drop((manager.shutdown(SOON, "restart").await, manager));
    let executor = endless(false);
    let manager = open(&log, executor.clone()).await;
    let _running = start(&manager, &executor).await;
    let answered = manager.execute(follow_up("m2", &asked.task_id)).await;
    let _answered = answered.expect("accepted");
    let report = manager.shutdown(SOON, "sigterm").await;
    assert_eq!((report.stopped(), report.kept_waiting), (1, 1));
    drop(manager);
    assert_all_run(&log, &[&asked.task_id]).await;
}
