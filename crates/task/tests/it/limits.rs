//! Limits for executions, and the shutdown of a manager.

use std::time::Duration;

use allstop_core::CauseKind;
use allstop_task::{CancelError, ExecuteError, TaskOptions, TaskParts, TaskState, WhenFull};
use tokio::time::Instant;

use crate::support::{
    ended, endless, manager, manager_of, request, start, user, wait_until, writes,
};

#[tokio::test(start_paused = true)]
async fn queued_task_starts_when_a_slot_is_free() {
    let executor = endless(false);
    let options = TaskOptions::default().running_max(1);
    let manager = manager(TaskParts::of(executor.clone()), options).await;
    let first = start(&manager, &executor).await;
    let second = manager.execute(request("m2")).await.unwrap();
    let third = manager.execute(request("m3")).await.unwrap();
    let waiting = manager.get(&second.task_id).await.unwrap();
    assert_eq!(waiting.status.state, TaskState::Submitted);
    assert_eq!(executor.live(), 1);
    // A waiting task can be stopped. Afterwards its position in the queue is free.
    let outcome = manager.cancel(&second.task_id, user()).await.unwrap();
    assert_eq!(outcome.task.status.state, TaskState::Canceled);
    assert!(outcome.receipt.quiet());
    let _outcome = manager.cancel(&first.task_id, user()).await.unwrap();
    executor.started().await;
    let running = manager.get(&third.task_id).await.unwrap();
    assert!(running.is_executing);
    let _outcome = manager.cancel(&third.task_id, user()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn task_at_rest_holds_no_slot() {
    let executor = writes(allstop_task::TaskEvent::state(TaskState::InputRequired));
    let options = TaskOptions::default()
        .running_max(1)
        .when_full(WhenFull::Refuse);
    let manager = manager(TaskParts::of(executor.clone()), options).await;
    for number in 0..3 {
        let mut accepted = manager
            .execute(request(&format!("m{number}")))
            .await
            .unwrap();
        ended(&manager, &mut accepted).await;
        // The slot is released a short time after the event.
        wait_until("it rests", || executor.live() == 0).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_everything_in_time() {
    let (polite, deaf) = (endless(false), endless(true));
    for executor in [polite, deaf] {
        let manager = manager_of(&executor).await;
        let mut tasks = Vec::new();
        for number in 0..20 {
            tasks.push(
                manager
                    .execute(request(&format!("m{number}")))
                    .await
                    .unwrap(),
            );
            executor.started().await;
        }
        let began = Instant::now();
        let report = manager.shutdown(Duration::from_secs(5), "sigterm").await;
        assert!(began.elapsed() <= Duration::from_secs(5));
        assert_eq!(report.not_stored, 0);
        assert_eq!(report.receipts.len(), 20);
        assert!(report.receipts.iter().all(|receipt| receipt.quiet()));
        assert_eq!(executor.live(), 0);
        let refused = manager.execute(request("late")).await.unwrap_err();
        assert!(matches!(refused, ExecuteError::ShuttingDown));
        for accepted in &mut tasks {
            let task = ended(&manager, accepted).await;
            assert_eq!(
                task.ending.cause.as_ref().unwrap().kind,
                CauseKind::Shutdown
            );
            // If the task is already stopped, a second stop returns the receipt of the first stop, and writes nothing.
            let again = manager.cancel(&task.id, user()).await;
            assert!(!matches!(again, Err(CancelError::Store(_))));
        }
    }
}
