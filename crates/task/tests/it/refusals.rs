//! Requests that are refused by a manager that owns its store alone. A node of a cluster does not refuse these
//! requests, for two reasons: tasks wait in a cluster, and a node may not know of a stop yet.

use allstop_task::{ExecuteError, TaskOptions, TaskParts, TaskRequest, WhenFull};

use crate::support::{endless, follow_up, manager, manager_of, request, start, user, wait_until};

fn of_owner(owner: &str, message: &str) -> TaskRequest {
    request(message).owner(owner)
}

#[tokio::test(start_paused = true)]
async fn limits_refuse_and_are_given_back() {
    let executor = endless(false);
    let options = TaskOptions::default()
        .running_max(2)
        .running_per_owner_max(1)
        .when_full(WhenFull::Refuse);
    let manager = manager(TaskParts::of(executor.clone()), options).await;
    let first = start(&manager, &executor).await;
    let refused = manager.execute(of_owner("alice", "m2")).await.unwrap_err();
    assert!(matches!(
        refused,
        ExecuteError::Full("too many of your tasks run")
    ));
    let _bob = manager.execute(of_owner("bob", "m1")).await.unwrap();
    executor.started().await;
    let refused = manager.execute(of_owner("carol", "m1")).await.unwrap_err();
    assert!(matches!(refused, ExecuteError::Full("too many tasks run")));
    let _outcome = manager.cancel(&first.task_id, user()).await.unwrap();
    wait_until("the slot is free", || executor.live() == 1).await;
    // The refused message is not stored, so its id can be used again.
    let again = manager.execute(of_owner("alice", "m2")).await.unwrap();
    assert!(!again.is_repeated);
}

/// In a cluster, the refusal may instead report that an execution runs.
#[tokio::test(start_paused = true)]
async fn message_during_a_stop_is_refused() {
    let executor = endless(true);
    let manager = manager_of(&executor).await;
    let accepted = start(&manager, &executor).await;
    let stop = manager.cancel(&accepted.task_id, user());
    let mut stop = std::pin::pin!(stop);
    assert!(futures::poll!(&mut stop).is_pending());
    let refused = manager.execute(follow_up("m2", &accepted.task_id)).await;
    assert!(matches!(
        refused.unwrap_err(),
        ExecuteError::CancellationInProgress(_)
    ));
    let _outcome = stop.await.unwrap();
}
