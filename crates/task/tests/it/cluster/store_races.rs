//! The store fails at a certain moment, while another process also writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{AppendIds, Log, RecordBytes, StreamName, Version};
use allstop_task::{
    ExecutionCx, ExecutorError, ExecutorReturn, ListFilter, Task, TaskEvent, TaskOptions,
    TaskParts, TaskPartsFactory, TaskState,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::line::{Line, LineState};
use super::support::{Cluster, LEASE, Node, task_when};
use super::trap::{NEWER_RECORD, Trap};
use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, request, start, user, wait_until, writes,
};

fn rests() -> ScriptedExecutor {
    writes(TaskEvent::state(TaskState::InputRequired))
}

async fn version_of(cluster: &Cluster, id: &TaskId) -> Version {
    let stream = StreamName::new(format!("task/{id}"));
    let records = cluster.log.read(&stream, Version(1), 1_000).await;
    let records = records.expect("it works");
    records.last().map_or(Version(0), |(version, _)| *version)
}

/// Another process writes a stop request just before the end is written. Then one read and one append fail.
#[tokio::test(start_paused = true)]
async fn end_refused_after_a_conflict_is_written_again() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let executor = ScriptedExecutor::new(|cx: ExecutionCx| async move {
        sleep(Duration::from_secs(1)).await;
        let end = TaskEvent::state(TaskState::Completed);
        let _ended = cx.events.write(end).await;
        Ok(ExecutorReturn::Finished)
    });
    let trap = Trap::at("task_ended").failing(1, 1);
    let (stopper, all) = (front.manager.clone(), cluster.clone());
    let id: Arc<Mutex<Option<TaskId>>> = Arc::default();
    let known = Arc::clone(&id);
    trap.set(move || async move {
        let id = known.lock().clone().unwrap();
        let before = version_of(&all, &id).await;
        let stopping = stopper.cancel(&id, user());
        let requested = async {
            while version_of(&all, &id).await == before {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // A stop continues even if its client no longer waits.
        tokio::select! {
            _answer = stopping => {}
            () = requested => {}
        }
    });
    let parts = Arc::new(TaskParts::of(executor));
    let _worker = cluster.trapped(trap, Line::new(None), parts, 8);
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    *id.lock() = Some(accepted.task_id.clone());
    let task = task_when(&front, &accepted.task_id, Task::has_ended).await;
    assert_eq!((task.status.state, task.epoch), (TaskState::Completed, 1));
}

/// The wake-up (a hint that a task needs a worker) of the first attempt is removed before the second attempt is stored.
/// Afterwards the owner of the task is lost.
#[tokio::test(start_paused = true)]
async fn each_attempt_at_a_stop_at_rest_has_a_wake_up() {
    let (cluster, executor) = (Cluster::new(), rests());
    let (other, line) = (cluster.front_end(), Line::new(None));
    let parts = TaskParts::of(executor.clone());
    let _owner = cluster.node_at(line.clone(), parts, 8, TaskOptions::default());
    let mut accepted = other.manager.execute(request("m1")).await.unwrap();
    ended(&other.manager, &mut accepted).await;
    wait_until("it is taken away", || cluster.link.wake_ups() == 0).await;
    let trap = Trap::at("stop_requested");
    let id = accepted.task_id.clone();
    let (client, all, task) = (other.manager.clone(), cluster.clone(), id.clone());
    trap.set(move || async move {
        let mut again = client.execute(follow_up("m2", &task)).await.unwrap();
        ended(&client, &mut again).await;
        wait_until("it is taken away", || all.link.wake_ups() == 0).await;
        line.set(LineState::Dead);
    });
    let nothing = Arc::new(TaskParts::of(endless(false)));
    let front = cluster.trapped(trap, Line::new(None), nothing, 0);
    let _requested = front.manager.cancel(&id, user()).await;
    let _successor = cluster.worker(&executor);
    let task = task_when(&other, &id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Canceled);
}

/// A factory that kills its process.
struct KillingFactory(Line, Arc<AtomicUsize>);

impl TaskPartsFactory for KillingFactory {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.set(LineState::Dead);
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn task_whose_factory_ends_its_workers_is_given_up() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let killed = Arc::new(AtomicUsize::new(0));
    let mut workers: Vec<Node> = Vec::new();
    for _ in 0..8 {
        let line = Line::new(None);
        let factory = Arc::new(KillingFactory(line.clone(), Arc::clone(&killed)));
        workers.push(cluster.trapped(Trap::default(), line, factory, 8));
        sleep(3 * LEASE).await;
    }
    let task = front.manager.get(&accepted.task_id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(killed.load(Ordering::SeqCst), 6, "the first and five more");
    assert_eq!(front.manager.dead_letters().await.unwrap().len(), 1);
}

/// During an upgrade, an old worker writes a dead letter for a task that it cannot read: an entry about a task that no
/// worker runs. Newer workers later give up the task.
#[tokio::test(start_paused = true)]
async fn letter_of_a_worker_that_could_not_read_gives_way() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let executor = endless(false).resumable();
    let trap = Trap::default();
    trap.reads_newer.store(true, Ordering::SeqCst);
    let parts = Arc::new(TaskParts::of(executor.clone()));
    let old = cluster.trapped(trap, Line::new(None), parts, 8);
    sleep(Duration::from_secs(2)).await;
    let letters = front.manager.dead_letters().await.unwrap();
    assert_eq!((letters.len(), letters[0].owner.clone()), (1, None));
    assert!(
        front
            .manager
            .retry_dead_letter(&accepted.task_id)
            .await
            .is_err()
    );
    old.kill().await;
    let mut worker = cluster.worker(&executor);
    executor_started(&executor).await;
    for _ in 0..5 {
        let next = cluster.worker(&executor);
        sleep(Duration::from_secs(1)).await;
        std::mem::replace(&mut worker, next).kill().await;
        executor_started(&executor).await;
    }
    let _last = cluster.worker(&executor);
    worker.kill().await;
    task_when(&front, &accepted.task_id, Task::has_ended).await;
    let again = front.manager.retry_dead_letter(&accepted.task_id).await;
    assert!(again.is_ok(), "{again:?}");
}

/// Waits for longer than two pauses: the pause of an unreadable task and the pause between two take-overs.
async fn executor_started(executor: &ScriptedExecutor) {
    for _ in 0..10 {
        if timeout(Duration::from_secs(15), executor.started())
            .await
            .is_ok()
        {
            return;
        }
    }
    panic!("it does not start");
}

#[tokio::test(start_paused = true)]
async fn record_of_a_newer_version_releases_the_worker() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let worker = cluster.worker(&executor);
    let accepted = start(&front.manager, &executor).await;
    sleep(Duration::from_secs(1)).await;
    let stream = StreamName::new(format!("task/{}", accepted.task_id));
    let version = version_of(&cluster, &accepted.task_id).await;
    let newer = RecordBytes::from(NEWER_RECORD.to_vec());
    let appended = cluster
        .log
        .append(&stream, version, AppendIds::new().next_id(), vec![newer]);
    appended.await.unwrap();
    assert!(
        worker
            .manager
            .cancel(&accepted.task_id, user())
            .await
            .is_err()
    );
    assert_eq!(executor.live(), 0);
    let drained = timeout(Duration::from_mins(5), worker.manager.drain()).await;
    assert!(drained.is_ok(), "its engine never ends");
}

/// The task has no wake-up. If its index entry were not written, no worker would correct the entry.
#[tokio::test(start_paused = true)]
async fn index_entry_outlives_the_node_that_ended_the_task() {
    for is_killed in [true, false] {
        let (cluster, executor) = (Cluster::new(), rests());
        let (front, first) = (cluster.front_end(), cluster.worker(&executor));
        let mut accepted = front.manager.execute(request("m1")).await.unwrap();
        ended(&front.manager, &mut accepted).await;
        wait_until("it is taken away", || cluster.link.wake_ups() == 0).await;
        let max = Duration::from_secs(5);
        drop(first.manager.shutdown(max, "test").await);
        let second = cluster.worker(&executor);
        sleep(2 * LEASE).await;
        let outcome = second.manager.cancel(&accepted.task_id, user()).await;
        assert_eq!(outcome.unwrap().task.status.state, TaskState::Canceled);
        if is_killed {
            second.kill().await;
        } else {
            drop(second.manager.shutdown(max, "test").await);
        }
        let list = front.manager.list(&ListFilter::default(), None, 10).await;
        assert_eq!(list.unwrap().tasks[0].state, TaskState::Canceled);
    }
}
