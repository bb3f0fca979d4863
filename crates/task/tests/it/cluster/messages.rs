//! Messages to any node while another node runs the task.

use std::time::Duration;

use allstop_core::ContextId;
use allstop_task::model::MessageSender;
use allstop_task::{
    ExecuteError, ExecutionCx, ExecutorReturn, ListFilter, Task, TaskEvent, TaskOptions, TaskParts,
    TaskState,
};
use tokio::time::{Instant, sleep};

use super::line::{Line, LineState};
use super::support::{Cluster, task_when};
use crate::support::{
    SOON, ScriptedExecutor, ended, endless, follow_up, request, rest, three_events, user,
};

#[tokio::test(start_paused = true)]
async fn front_end_takes_a_message_and_a_worker_runs_it() {
    let cluster = Cluster::new();
    let (front, worker) = (cluster.front_end(), cluster.worker(&three_events()));
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let task = ended(&front.manager, &mut accepted).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert!(task.worker.is_some() && task.epoch == 1);
    // Every node can return all events, starting after any version.
    let mut events = worker
        .manager
        .subscribe(&task.id, Some(allstop_log::Version(1)))
        .await
        .unwrap();
    assert_eq!(
        rest(&mut events).await,
        ["working", "artifact answer", "ended completed"]
    );
    let page = worker
        .manager
        .list(&ListFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!((page.total, page.tasks[0].id == task.id), (1, true));
}

#[tokio::test(start_paused = true)]
async fn message_is_taken_once_whichever_node_gets_it() {
    let cluster = Cluster::new();
    let nodes = [cluster.front_end(), cluster.front_end()];
    let _worker = cluster.worker(&three_events());
    let requests = (0..20).map(|number| nodes[number % 2].manager.execute(request("m1")));
    let answers = futures::future::join_all(requests).await;
    let accepted: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(accepted.iter().filter(|task| !task.is_repeated).count(), 1);
    assert!(
        accepted
            .iter()
            .all(|task| task.task_id == accepted[0].task_id)
    );
    let task = task_when(
        &nodes[0],
        &accepted[0].task_id,
        allstop_task::Task::has_ended,
    )
    .await;
    assert_eq!(task.epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn answer_to_a_question_continues_the_task() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    let asks_once = ScriptedExecutor::new(|cx: ExecutionCx| async move {
        let messages = cx.task.history.iter();
        let answers = messages
            .filter(|message| message.role == MessageSender::User)
            .count();
        let state = [TaskState::InputRequired, TaskState::Completed][answers - 1];
        cx.events
            .write(TaskEvent::state(state))
            .await
            .expect("it runs");
        Ok(ExecutorReturn::Finished)
    });
    let _workers = [cluster.worker(&asks_once), cluster.worker(&asks_once)];
    let mut accepted = front.manager.execute(request("m1")).await.unwrap();
    let asked = ended(&front.manager, &mut accepted).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let mut answered = front
        .manager
        .execute(follow_up("m2", &asked.id))
        .await
        .unwrap();
    let again = front
        .manager
        .execute(follow_up("m2", &asked.id))
        .await
        .unwrap();
    assert!(!answered.is_repeated && again.is_repeated);
    let task = ended(&front.manager, &mut answered).await;
    assert_eq!((task.status.state, task.epoch), (TaskState::Completed, 2));
    let late = front.manager.execute(follow_up("m3", &asked.id)).await;
    assert!(matches!(late, Err(ExecuteError::Ended { .. })));
}

#[tokio::test(start_paused = true)]
async fn context_belongs_to_its_first_owner_at_every_node() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.front_end(), cluster.front_end());
    let in_context =
        |owner: &str, message: &str| request(message).owner(owner).context(ContextId::new("c1"));
    one.manager
        .execute(in_context("alice", "m1"))
        .await
        .unwrap();
    let other = two.manager.execute(in_context("bob", "m2")).await;
    assert!(matches!(other, Err(ExecuteError::ContextOfOther(_))));
    two.manager
        .execute(in_context("alice", "m3"))
        .await
        .unwrap();
}

/// Servers accept no changes of entries while they have no leader for them, for example after they have created them.
#[tokio::test(start_paused = true)]
async fn message_waits_for_servers_that_store_no_entries_yet() {
    let cluster = Cluster::new();
    let front = cluster.front_end();
    front.line.set(LineState::NoPuts);
    let elected = async {
        sleep(Duration::from_secs(9)).await;
        front.line.set(LineState::Open);
    };
    let (accepted, ()) = tokio::join!(front.manager.execute(request("m1")), elected);
    accepted.expect("the servers have a leader again");
    front.line.set(LineState::NoPuts);
    let began = Instant::now();
    let refused = front.manager.execute(request("m2")).await;
    assert!(matches!(refused, Err(ExecuteError::Store(_))));
    assert!(began.elapsed() < Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn wake_ups_are_taken_away_when_their_tasks_have_ended() {
    let cluster = Cluster::new();
    let worker = cluster.worker(&three_events());
    for number in 0..5 {
        let accepted = worker.manager.execute(request(&format!("m{number}"))).await;
        ended(&worker.manager, &mut accepted.unwrap()).await;
    }
    crate::support::wait_until("no wake-up is left", || cluster.link.wake_ups() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_go_away_take_nothing_back() {
    let cluster = Cluster::new();
    let executor = endless(false);
    let far = Line::new(None).slowed(Duration::from_millis(3));
    let parts = TaskParts::of(executor.clone());
    let front = cluster.node_at(far, parts, 0, TaskOptions::default());
    let _worker = cluster.worker(&executor);
    {
        let sending = front.manager.execute(request("m1"));
        let mut sending = std::pin::pin!(sending);
        assert!(futures::poll!(&mut sending).is_pending());
    }
    executor.started().await;
    let id = front.manager.execute(request("m1")).await.unwrap().task_id;
    {
        let stopping = front.manager.cancel(&id, user());
        let mut stopping = std::pin::pin!(stopping);
        assert!(futures::poll!(&mut stopping).is_pending());
    }
    let task = task_when(&front, &id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Canceled);
}

/// Starts a request, and drops it as if its client had disconnected.
async fn asked<T>(request: impl Future<Output = T>) {
    let mut request = std::pin::pin!(request);
    assert!(futures::poll!(&mut request).is_pending());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(futures::poll!(&mut request).is_pending());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_messages_and_stops_that_are_under_way() {
    let cluster = Cluster::new();
    let executor = endless(false);
    let worker = cluster.worker(&executor);
    let front = || {
        let far = Line::new(None).slowed(Duration::from_millis(50));
        cluster.node_at(
            far,
            TaskParts::of(executor.clone()),
            0,
            TaskOptions::default(),
        )
    };
    let first = front();
    asked(first.manager.execute(request("m1"))).await;
    let _report = first.manager.shutdown(SOON, "the end").await;
    first.kill().await;
    executor.started().await;
    let id = worker.manager.execute(request("m1")).await.unwrap().task_id;

    let second = front();
    asked(second.manager.cancel(&id, user())).await;
    let _report = second.manager.shutdown(SOON, "the end").await;
    second.kill().await;
    let task = task_when(&worker, &id, Task::has_ended).await;
    assert_eq!(task.status.state, TaskState::Canceled);
}
