//! Workers (nodes that run tasks) without a free permit for an execution, and tasks without a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_task::{
    ExecutionCx, ExecutorReturn, Task, TaskEvent, TaskOptions, TaskParts, TaskState, WhenFull,
};
use tokio::time::{Instant, sleep};

use super::line::Line;
use super::support::{Cluster, Node, task_when};
use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, request, user, wait_until, writes,
};

const SHUTDOWN_MAX: Duration = Duration::from_secs(5);

/// At its first run, the executor asks a question. At its second run, it works for ten minutes. `most` contains the
/// maximum number of parallel runs.
fn rests_then_works(most: &Arc<AtomicUsize>) -> ScriptedExecutor {
    let (live, most) = (Arc::new(AtomicUsize::new(0)), Arc::clone(most));
    ScriptedExecutor::new(move |cx: ExecutionCx| {
        let (live, most) = (Arc::clone(&live), Arc::clone(&most));
        async move {
            if cx.task.epoch < 2 {
                let rest = TaskEvent::state(TaskState::InputRequired);
                let _ended = cx.events.write(rest).await;
                return Ok(ExecutorReturn::Finished);
            }
            most.fetch_max(live.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_mins(10)).await;
            live.fetch_sub(1, Ordering::SeqCst);
            let end = TaskEvent::state(TaskState::Completed);
            let _ended = cx.events.write(end).await;
            Ok(ExecutorReturn::Finished)
        }
    })
}

/// A worker with the options of the command line. The number of permits limits the running tasks; all other tasks wait.
fn worker_of(cluster: &Cluster, executor: &ScriptedExecutor, places: usize) -> Node {
    let options = TaskOptions::default()
        .running_max(places)
        .when_full(WhenFull::Queue { len_max: 1_000 });
    let parts = TaskParts::of(executor.clone());
    cluster.node_at(Line::new(None), parts, places, options)
}

#[tokio::test(start_paused = true)]
async fn follow_ups_run_at_workers_with_a_free_permit() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let (of_owner, of_others) = (Arc::default(), Arc::default());
    let owner = worker_of(&cluster, &rests_then_works(&of_owner), 1);
    let mut tasks = Vec::new();
    for number in 0..10 {
        let message = request(&format!("m{number}"));
        let mut accepted = front.manager.execute(message).await.unwrap();
        ended(&front.manager, &mut accepted).await;
        tasks.push(accepted.task_id);
    }
    let _other = worker_of(&cluster, &rests_then_works(&of_others), 9);
    sleep(Duration::from_secs(2)).await;
    for (number, task) in tasks.iter().enumerate() {
        let message = follow_up(&format!("f{number}"), task);
        front.manager.execute(message).await.unwrap();
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(of_owner.load(Ordering::SeqCst), 1);
    assert_eq!(of_others.load(Ordering::SeqCst), 9);
    // Only one task runs on this worker, so a shutdown of the worker stops only this task.
    let report = owner.manager.shutdown(SHUTDOWN_MAX, "test").await;
    assert_eq!(report.receipts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn front_end_ends_a_task_at_rest_that_no_worker_has() {
    let cluster = Cluster::new();
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let (front, worker) = (cluster.front_end(), cluster.worker(&executor));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    ended(&front.manager, &mut accepted).await;
    drop(worker.manager.shutdown(SHUTDOWN_MAX, "test").await);
    sleep(Duration::from_hours(1)).await;
    let begun = Instant::now();
    let outcome = front.manager.cancel(&accepted.task_id, user()).await;
    assert_eq!(outcome.unwrap().task.status.state, TaskState::Canceled);
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn worker_without_a_permit_still_stops_tasks() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let lost = cluster.worker(&executor);
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    executor.started().await;
    lost.kill().await;
    let busy = endless(false);
    let _worker = cluster.node(TaskParts::of(busy.clone()), 1);
    front.manager.execute(request("m2")).await.unwrap();
    busy.started().await;
    let _requested = front.manager.cancel(&accepted.task_id, user()).await;
    let task = task_when(&front, &accepted.task_id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(busy.live(), 1);
}

/// A task that needs a permit goes to a worker with a free permit. Workers without a permit also read wake-ups (hints
/// that a task needs a worker), but must not delay the task.
#[tokio::test(start_paused = true)]
async fn task_passes_busy_workers_by() {
    let cluster = Cluster::new();
    let (front, busy) = (cluster.front_end(), endless(false));
    let _workers = [(); 5].map(|()| cluster.node(TaskParts::of(busy.clone()), 1));
    for number in 0..5 {
        front
            .manager
            .execute(request(&format!("b{number}")))
            .await
            .unwrap();
        busy.started().await;
    }
    let waiting = front.manager.execute(request("m")).await.unwrap();
    sleep(Duration::from_mins(10)).await;
    assert_eq!(busy.live(), 5);
    let _free = cluster.worker(&busy);
    let begun = Instant::now();
    task_when(&front, &waiting.task_id, |task| task.is_executing).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    wait_until("it runs", || busy.live() == 6).await;
}
