//! Subscribers in special situations: some do not read, some start late or several times, and some subscribe to a task
//! at rest. A number such as G1 names a known failure of other A2A servers.

use std::time::Duration;

use allstop_log::Version;
use allstop_task::model::Artifact;
use allstop_task::{ExecutorReturn, ReadTaskError, SubscriptionItem, TaskEvent, TaskState};

use crate::support::{
    ScriptedExecutor, ended, follow_up, manager_of, request, rest, three_events, user, writes,
};

/// Executor that writes this number of events, and then an end.
fn chatty(events: usize) -> ScriptedExecutor {
    ScriptedExecutor::new(move |cx| async move {
        for number in 0..events {
            let artifact = Artifact::text(format!("a{number}"), "x");
            cx.events
                .write(TaskEvent::artifact(artifact))
                .await
                .expect("it works");
        }
        cx.events
            .write(TaskEvent::state(TaskState::Completed))
            .await
            .expect("it runs");
        Ok(ExecutorReturn::Finished)
    })
}

/// G1: several subscribers never read, and one subscriber reads.
#[tokio::test(start_paused = true)]
async fn g1_stalled_subscriber_costs_nobody_anything() {
    let executor = chatty(2_000);
    let manager = manager_of(&executor).await;
    let accepted = manager.execute(request("m1")).await.unwrap();
    let id = &accepted.task_id;
    let mut stalled = Vec::new();
    for _ in 0..100 {
        stalled.push(manager.subscribe(id, None).await.unwrap());
    }
    let mut reader = manager.subscribe(id, Some(Version(1))).await.unwrap();
    let read = rest(&mut reader);
    let words = tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap();
    assert_eq!(words.last().unwrap(), "ended completed");
    // Other tasks can also continue.
    let mut other = manager.execute(request("m2")).await.unwrap();
    ended(&manager, &mut other).await;
    // When a subscriber that was too slow reads again, it misses no record: the log contains the records that are no
    // longer in the window of recent records.
    let late = rest(&mut stalled.swap_remove(0)).await;
    let artifacts = late
        .iter()
        .filter(|word| word.starts_with("artifact"))
        .count();
    assert!(late[0].starts_with("snapshot"));
    assert!(artifacts <= 2_000 && late.last().unwrap() == "ended completed");
}

#[tokio::test(start_paused = true)]
async fn reader_that_comes_back_misses_and_repeats_nothing() {
    let executor = chatty(700);
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    let all = rest(&mut accepted.subscription).await;
    let begin = Version(2);
    for cut in [0_usize, 1, 255, 256, 257, 699] {
        let mut first = manager
            .subscribe(&accepted.task_id, Some(begin))
            .await
            .unwrap();
        let mut words = Vec::new();
        for _ in 0..cut {
            let Some(Ok(SubscriptionItem::Update(update))) = first.next().await else {
                panic!("there is more");
            };
            words.push(update.version);
        }
        let cursor = first.cursor();
        drop(first);
        let mut second = manager
            .subscribe(&accepted.task_id, Some(cursor))
            .await
            .unwrap();
        while let Some(Ok(SubscriptionItem::Update(update))) = second.next().await {
            words.push(update.version);
        }
        let expected: Vec<_> = (begin.0 + 1..=begin.0 + 701).map(Version).collect();
        assert_eq!(words, expected, "cut behind {cut}");
    }
    assert_eq!(all.len(), 702);
}

/// G5: a subscriber can follow a task that waits for input.
#[tokio::test(start_paused = true)]
async fn g5_task_at_rest_can_be_followed() {
    let executor = writes(TaskEvent::state(TaskState::InputRequired));
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let mut follower = manager.subscribe(&accepted.task_id, None).await.unwrap();
    let Some(Ok(SubscriptionItem::Snapshot(_, task))) = follower.next().await else {
        panic!("the first item is a snapshot");
    };
    assert_eq!(task.status.state, TaskState::InputRequired);
    let _second = manager
        .execute(follow_up("m2", &accepted.task_id))
        .await
        .unwrap();
    assert_eq!(rest(&mut follower).await, ["message", "input_required"]);
    // A stop also ends this subscription.
    let mut follower = manager.subscribe(&accepted.task_id, None).await.unwrap();
    let _outcome = manager.cancel(&accepted.task_id, user()).await.unwrap();
    let words = rest(&mut follower).await;
    assert_eq!(words.last().unwrap(), "ended canceled");
}

/// G6: the subscription of an ended task returns the last state and then ends.
#[tokio::test(start_paused = true)]
async fn g6_ended_task_gives_its_snapshot_only() {
    let executor = three_events();
    let manager = manager_of(&executor).await;
    let mut accepted = manager.execute(request("m1")).await.unwrap();
    ended(&manager, &mut accepted).await;
    let mut late = manager.subscribe(&accepted.task_id, None).await.unwrap();
    assert_eq!(rest(&mut late).await, ["snapshot completed"]);
    let unknown = manager
        .subscribe(&"nothing".into(), None)
        .await
        .unwrap_err();
    assert!(matches!(unknown, ReadTaskError::NotFound(_)));
}
