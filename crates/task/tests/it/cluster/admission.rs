//! The limits of the tasks that a front end accepts.

use allstop_core::TaskId;
use allstop_task::{AcceptedTask, AdmissionLimits, ExecuteError};
use futures::future::join_all;

use super::support::{Cluster, Node, task_when};
use crate::support::{endless, request, user};

fn limits(running_max: usize, waiting_max: usize) -> AdmissionLimits {
    AdmissionLimits::default()
        .running_max(running_max)
        .waiting_max(waiting_max)
}

async fn send(front: &Node, owner: &str, message: &str) -> Result<AcceptedTask, ExecuteError> {
    let request = request(message).owner(owner);
    front.manager.execute(request).await
}

async fn accepted(front: &Node, owner: &str, message: &str) -> TaskId {
    let accepted = send(front, owner, message).await;
    accepted.expect("there is room").task_id
}

async fn assert_full(front: &Node, owner: &str, message: &str) {
    let refused = send(front, owner, message).await;
    assert!(matches!(refused, Err(ExecuteError::Full(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_beyond_the_limit_are_refused_until_a_task_has_ended() {
    let cluster = Cluster::new();
    let _worker = cluster.worker(&endless(false));
    let front = cluster.limited_front_end(limits(1, 1));
    let first = accepted(&front, "alice", "1").await;
    let second = accepted(&front, "bob", "2").await;
    assert_full(&front, "carol", "3").await;
    // A repetition starts nothing.
    let again = send(&front, "alice", "1").await.expect("it is known");
    assert!(again.is_repeated);
    assert_eq!(again.task_id, first);
    for (stopped, next) in [(first, "4"), (second, "5")] {
        let outcome = front.manager.cancel(&stopped, user()).await;
        assert!(outcome.expect("it runs or waits").receipt.quiet());
        accepted(&front, "carol", next).await;
        assert_full(&front, "carol", "6").await;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_at_the_same_moment_do_not_pass_the_limit() {
    let cluster = Cluster::new();
    let _worker = cluster.worker(&endless(false));
    let front = cluster.limited_front_end(limits(2, 1));
    let messages: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let sent = join_all(messages.iter().map(|id| send(&front, "alice", id))).await;
    assert_eq!(sent.iter().filter(|sent| sent.is_ok()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_owner_cannot_take_the_places_of_others() {
    let cluster = Cluster::new();
    let _worker = cluster.worker(&endless(false));
    let front = cluster.limited_front_end(limits(2, 0).running_per_owner_max(1));
    accepted(&front, "alice", "1").await;
    assert_full(&front, "alice", "2").await;
    accepted(&front, "bob", "3").await;
    assert_full(&front, "carol", "4").await;
}

/// A new front end counts the tasks that an earlier one has accepted.
#[tokio::test(start_paused = true)]
async fn restart_does_not_reset_the_count() {
    let cluster = Cluster::new();
    let _worker = cluster.worker(&endless(false));
    let earlier = cluster.limited_front_end(limits(1, 0));
    let running = accepted(&earlier, "alice", "1").await;
    earlier.kill().await;
    let front = cluster.limited_front_end(limits(1, 0));
    task_when(&front, &running, |task| task.is_executing).await;
    assert_full(&front, "bob", "2").await;
    let outcome = front.manager.cancel(&running, user()).await;
    assert!(outcome.expect("it runs").receipt.quiet());
    accepted(&front, "bob", "3").await;
}
