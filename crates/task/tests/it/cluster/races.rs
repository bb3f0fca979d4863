//! Moments at which the information of a node is outdated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_core::CauseKind;
use allstop_log::{AppendIds, Log, RecordBytes, StreamName};
use allstop_task::{
    CancelError, ExecutionCx, ExecutorReturn, Task, TaskEvent, TaskOptions, TaskParts, TaskState,
    WakeUpQueue,
};
use tokio::time::{Instant, sleep, timeout};

use super::line::{Line, LineState};
use super::support::{Cluster, LEASE, Node, task_when};
use crate::support::{
    ScriptedExecutor, ended, endless, follow_up, request, start, three_events, user, wait_until,
};

fn worker_at(cluster: &Cluster, line: &Line, executor: &ScriptedExecutor) -> Node {
    let parts = TaskParts::of(executor.clone());
    cluster.node_at(line.clone(), parts, 8, TaskOptions::default())
}

/// Executor that asks a question at its first run, and answers each later message. Also returns the number of its runs.
fn asks_first() -> (ScriptedExecutor, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let executor = ScriptedExecutor::new(move |cx: ExecutionCx| {
        let states = [TaskState::InputRequired, TaskState::Completed];
        let state = states[count.fetch_add(1, Ordering::SeqCst).min(1)];
        async move {
            let _ended = cx.events.write(TaskEvent::state(state)).await;
            Ok(ExecutorReturn::Finished)
        }
    });
    (executor, runs)
}

/// A worker that does not answer may have started the execution of the message, so no other worker may start it.
#[tokio::test(start_paused = true)]
async fn silence_of_an_owner_is_not_idleness() {
    let cluster = Cluster::new();
    let (front, (executor, runs)) = (cluster.front_end(), asks_first());
    let line = Line::new(None);
    let _owner = worker_at(&cluster, &line, &executor);
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let asked = ended(&front.manager, &mut accepted).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let _other = cluster.worker(&executor);
    sleep(Duration::from_secs(1)).await;
    line.set(LineState::Dead);
    let silent_since = Instant::now();
    let answer = follow_up("m2", &asked.id);
    front.manager.execute(answer).await.unwrap();
    let done = task_when(&front, &asked.id, Task::has_ended).await;
    assert_eq!((done.status.state, done.epoch), (TaskState::Completed, 2));
    let took = silent_since.elapsed();
    let least = LEASE * 7 / 8;
    assert!(
        took >= least && took <= LEASE + Duration::from_secs(1),
        "{took:?}"
    );
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// The owner of a task (its worker) has stopped the work. Before the owner can write the end, another worker takes the
/// task over.
#[tokio::test(start_paused = true)]
async fn stop_that_its_owner_could_not_store_reaches_the_successor() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let executor = endless(false).resumable();
    let line = Line::new(None);
    let owner = worker_at(&cluster, &line, &executor);
    let accepted = start(&front.manager, &executor).await;
    let id = &accepted.task_id;
    let _successor = cluster.worker(&executor);
    sleep(Duration::from_secs(1)).await;
    line.set(LineState::Cut);
    let stopping = owner.manager.cancel(id, user());
    let taken_over = async {
        task_when(&front, id, |task| task.epoch == 2).await;
        line.set(LineState::Open);
        task_when(&front, id, Task::has_ended).await
    };
    let (answer, task) = tokio::join!(stopping, taken_over);
    assert_eq!(*answer.unwrap().task, *task, "the end is the successor's");
    assert_eq!(task.status.state, TaskState::Canceled);
    assert_eq!(task.ending.cause.as_ref().unwrap().kind, CauseKind::User);
    assert_eq!(executor.live(), 0);
}

/// Whenever the stopping node has read the log, the owner of the task has already written new records.
#[tokio::test(start_paused = true)]
async fn owner_that_writes_all_the_time_can_be_stopped() {
    let cluster = Cluster::new();
    let executor = ScriptedExecutor::new(|cx: ExecutionCx| async move {
        while cx
            .events
            .write(TaskEvent::state(TaskState::Working))
            .await
            .is_ok()
        {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(ExecutorReturn::Finished)
    });
    let _worker = cluster.worker(&executor);
    // In this time, the owner writes twenty records.
    let line = Line::new(None).slowed(Duration::from_millis(10));
    let nothing = TaskParts::of(endless(false));
    let front = cluster.node_at(line, nothing, 0, TaskOptions::default());
    let accepted = start(&front.manager, &executor).await;
    let outcome = front.manager.cancel(&accepted.task_id, user()).await;
    assert_eq!(outcome.unwrap().task.status.state, TaskState::Canceled);
    assert_eq!(executor.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn lease_outlives_answers_that_are_lost() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let line = Line::new(None);
    let _worker = worker_at(&cluster, &line, &executor);
    let accepted = start(&front.manager, &executor).await;
    let before = front.manager.workers().await.unwrap();
    line.set(LineState::Unheard);
    // The time in which a worker renews its lease twice.
    sleep(LEASE / 4).await;
    line.set(LineState::Open);
    sleep(3 * LEASE).await;
    let after = front.manager.workers().await.unwrap();
    assert_eq!(before[0].id, after[0].id);
    let task = front.manager.get(&accepted.task_id).await.unwrap();
    assert_eq!((task.epoch, executor.live()), (1, 1));
}

/// Removes all wake-ups (hints that a task needs a worker), as if each wake-up had been delivered long before its
/// record.
async fn lose_wake_ups(cluster: &Cluster) {
    while cluster.link.wake_ups() > 0 {
        let held = cluster.link.next_wake_up().await.expect("there is one");
        held.remove().await.expect("it works");
    }
}

#[tokio::test(start_paused = true)]
async fn message_that_is_sent_again_wakes_a_worker_again() {
    let cluster = Cluster::new();
    let (front, (executor, _runs)) = (cluster.front_end(), asks_first());
    let first = cluster.worker(&executor);
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let asked = ended(&front.manager, &mut accepted).await;
    let report = first.manager.shutdown(Duration::ZERO, "test").await;
    assert_eq!(report.not_stored, 0);
    wait_until("its wake-up is taken away", || cluster.link.wake_ups() == 0).await;
    let answer = follow_up("m2", &asked.id);
    front.manager.execute(answer.clone()).await.unwrap();
    lose_wake_ups(&cluster).await;
    let again = front.manager.execute(answer).await.unwrap();
    assert!(again.is_repeated);
    let _second = cluster.worker(&executor);
    let task = task_when(&front, &asked.id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Completed);
}

/// The executor writes `input_required`, and the answer to this append is lost. The retry must not append the record
/// again.
#[tokio::test(start_paused = true)]
async fn rest_with_a_lost_answer_is_written_once() {
    let cluster = Cluster::new();
    let (front, line) = (cluster.front_end(), Line::new(None));
    let at_write = line.clone();
    let executor = ScriptedExecutor::new(move |cx: ExecutionCx| {
        let line = at_write.clone();
        async move {
            line.set(LineState::Unheard);
            let rest = TaskEvent::state(TaskState::InputRequired);
            let _ended = cx.events.write(rest).await;
            Ok(ExecutorReturn::Finished)
        }
    });
    let _worker = worker_at(&cluster, &line, &executor);
    let accepted = start(&front.manager, &executor).await;
    let is_at_rest = |task: &Task| task.status.state == TaskState::InputRequired;
    task_when(&front, &accepted.task_id, is_at_rest).await;
    line.set(LineState::Open);
    // The worker removes the wake-up after it has read that the task is at rest.
    wait_until("it knows", || cluster.link.wake_ups() == 0).await;
    let stream = StreamName::new(format!("task/{}", accepted.task_id));
    let records = cluster.log.read(&stream, allstop_log::Version(1), 100);
    let records = records.await.unwrap();
    let starts_and_rests = records.iter().filter(|(_, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        text.contains("execution_started") || text.contains("status_changed")
    });
    assert_eq!(starts_and_rests.count(), 2, "{records:?}");
}

/// The stop request is not in the log, and no process would repeat the request. So the answer must not report that the
/// stop is requested.
#[tokio::test(start_paused = true)]
async fn stop_that_cannot_be_written_is_not_promised() {
    let cluster = Cluster::new();
    let executor = endless(false);
    let (to_worker, to_front) = (Line::new(None), Line::new(None));
    let _worker = worker_at(&cluster, &to_worker, &executor);
    let nothing = TaskParts::of(endless(false));
    let front = cluster.node_at(to_front.clone(), nothing, 0, TaskOptions::default());
    let accepted = start(&front.manager, &executor).await;
    to_worker.set(LineState::Dead);
    to_front.set(LineState::ReadOnly);
    let answer = front.manager.cancel(&accepted.task_id, user()).await;
    assert!(matches!(answer, Err(CancelError::Store(_))), "{answer:?}");
    let task = front.manager.get_with_replies(&accepted.task_id).await;
    assert_eq!(task.unwrap().stop_requested, None);
}

#[tokio::test(start_paused = true)]
async fn repeated_wake_up_takes_one_permit() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    front.manager.execute(request("m1")).await.unwrap();
    let held = cluster.link.next_wake_up().await.unwrap();
    cluster.link.wake(held.payload().to_vec()).await.unwrap();
    held.release_after(Duration::ZERO).await.unwrap();
    let parts = TaskParts::of(executor.clone());
    let _worker = cluster.node(parts, 2);
    executor.started().await;
    front.manager.execute(request("m2")).await.unwrap();
    executor.started().await;
    assert_eq!(executor.live(), 2);
}

/// This version cannot read the task, but a worker of a newer version may be able to.
#[tokio::test(start_paused = true)]
async fn unreadable_task_is_listed_and_keeps_its_wake_up() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let accepted = front.manager.execute(request("m1")).await.unwrap();
    let stream = StreamName::new(format!("task/{}", accepted.task_id));
    let newer = RecordBytes::from(br#"{"v":2,"type":"task_forked"}"#.to_vec());
    let id = AppendIds::new().next_id();
    let appended = cluster
        .log
        .append(&stream, allstop_log::Version(1), id, vec![newer]);
    appended.await.unwrap();
    let _worker = cluster.worker(&three_events());
    let listed = async {
        while front.manager.dead_letters().await.unwrap().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LEASE, listed).await.expect("it is listed");
    sleep(LEASE).await;
    let letters = front.manager.dead_letters().await.unwrap();
    assert_eq!((letters.len(), &letters[0].task), (1, &accepted.task_id));
    assert_eq!(cluster.link.wake_ups(), 1);
}
