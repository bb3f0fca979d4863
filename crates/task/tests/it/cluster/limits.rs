//! The limit for the tasks of one owner, on all workers together.

use std::time::Duration;

use allstop_core::TaskId;
use allstop_task::{
    CancelError, ExecuteError, ExecutionCx, ExecutorReturn, Task, TaskEvent, TaskOptions,
    TaskParts, TaskState,
};
use futures::StreamExt as _;
use tokio::time::sleep;

use super::line::{Line, LineState};
use super::support::{Cluster, LEASE, Node, task_when};
use crate::support::{ScriptedExecutor, endless, request, user, wait_until};

/// A time that is much longer than the longest pause of a waiting task.
const WHILE: Duration = Duration::from_mins(1);

fn limited(cluster: &Cluster, executor: &ScriptedExecutor, max: usize) -> Node {
    let options = TaskOptions::default().running_per_owner_max(max);
    let parts = TaskParts::of(executor.clone());
    cluster.node_at(Line::new(None), parts, 8, options)
}

async fn send(front: &Node, owner: &str, message: &str) -> TaskId {
    let request = request(message).owner(owner);
    let accepted = front.manager.execute(request).await;
    accepted.expect("it is stored").task_id
}

#[tokio::test(start_paused = true)]
async fn limit_of_an_owner_counts_on_all_workers() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let _workers = [(); 2].map(|()| limited(&cluster, &executor, 2));
    let mut tasks = Vec::new();
    for number in 0..5 {
        tasks.push(send(&front, "alice", &format!("a{number}")).await);
    }
    wait_until("two run", || executor.live() == 2).await;
    sleep(WHILE).await;
    assert_eq!(executor.live(), 2);
    // The tasks of another owner do not wait for the slots of this owner.
    let of_bob = send(&front, "bob", "b").await;
    task_when(&front, &of_bob, |task| task.is_executing).await;
    assert_eq!(executor.live(), 3);
    // A stop needs no slot. When the task has ended, its slot is free.
    for task in tasks {
        let outcome = front.manager.cancel(&task, user()).await.unwrap();
        assert_eq!(outcome.task.status.state, TaskState::Canceled);
        assert!(executor.live() <= 3, "{}", executor.live());
    }
    wait_until("one of bob runs", || executor.live() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_for_a_slot_all_end() {
    let cluster = Cluster::new();
    let executor = ScriptedExecutor::new(|cx: ExecutionCx| async move {
        sleep(Duration::from_millis(100)).await;
        let end = TaskEvent::state(TaskState::Completed);
        cx.events.write(end).await.expect("it runs");
        Ok(ExecutorReturn::Finished)
    });
    let front = cluster.front_end();
    let _workers = [(); 3].map(|()| limited(&cluster, &executor, 1));
    let mut tasks = Vec::new();
    for number in 0..12 {
        tasks.push(send(&front, "alice", &format!("a{number}")).await);
    }
    let watching = async {
        loop {
            assert!(executor.live() <= 1);
            sleep(Duration::from_millis(7)).await;
        }
    };
    let ending = async {
        for task in &tasks {
            let ended = task_when(&front, task, Task::has_ended).await;
            assert_eq!((ended.status.state, ended.epoch), (TaskState::Completed, 1));
        }
    };
    tokio::select! {
        () = watching => {}
        () = ending => {}
    }
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_killed_worker_are_free_after_its_lease() {
    let cluster = Cluster::new();
    let (front, executor) = (cluster.front_end(), endless(false));
    let first = limited(&cluster, &executor, 1);
    let lost = send(&front, "alice", "a0").await;
    wait_until("it runs", || executor.live() == 1).await;
    let _second = limited(&cluster, &executor, 1);
    let waiting = send(&front, "alice", "a1").await;
    sleep(WHILE).await;
    assert!(!front.manager.get(&waiting).await.unwrap().is_executing);
    first.kill().await;
    // The task cannot be resumed, so it ends, and its slot is free for the other task.
    let lost = task_when(&front, &lost, Task::has_ended).await;
    assert_eq!(lost.status.state, TaskState::Failed);
    sleep(LEASE + WHILE).await;
    assert!(front.manager.get(&waiting).await.unwrap().is_executing);
    assert_eq!(executor.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_for_the_store_are_limited() {
    let cluster = Cluster::new();
    let (executor, line) = (endless(false), Line::new(None));
    let parts = TaskParts::of(executor.clone());
    let front = cluster.node_at(line.clone(), parts, 0, TaskOptions::default());
    line.set(LineState::Cut);
    let mut waiting = futures::stream::FuturesUnordered::new();
    let is_full = |answer: &Result<_, _>| matches!(answer, Err(ExecuteError::Full(_)));
    for number in 0..1_024 {
        let manager = front.manager.clone();
        waiting.push(async move {
            manager
                .execute(request(&format!("m{number}")))
                .await
                .map(drop)
        });
    }
    assert!(futures::poll!(waiting.next()).is_pending());
    let beyond = front.manager.execute(request("beyond")).await;
    assert!(matches!(beyond, Err(ExecuteError::Full(_))), "{beyond:?}");
    // A stop needs no permit, so the error comes only from the store.
    let stopped = front.manager.cancel(&"t".into(), user()).await;
    assert!(matches!(stopped, Err(CancelError::Store(_))), "{stopped:?}");
    while let Some(answer) = waiting.next().await {
        assert!(!is_full(&answer), "{answer:?}");
    }
    line.set(LineState::Open);
    assert!(front.manager.execute(request("later")).await.is_ok());
}
