//! Deliveries across a restart: the log contains the number of the last delivered event.

use std::time::Duration;

use allstop_log::{AppendId, StreamName, Version};
use serde_json::json;

use super::receiver::{HookAnswer, ReceivedEvent, Receiver, words};
use super::rig::{Rig, quick};

#[tokio::test]
async fn reopened_store_continues_after_the_last_delivery() {
    let hook = Receiver::answering(|count| match count {
        2 => HookAnswer::Hang,
        _ => HookAnswer::Status(200),
    })
    .await;
    let rig = Rig::start(quick()).await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    hook.wait_for(2).await;
    // During the shutdown, the delivery records that the first event is delivered.
    let rig = Rig::open(rig.close().await, quick()).await;
    rig.active(0).await;
    let received = hook.received();
    let expected = ["working", "artifactUpdate", "artifactUpdate", "completed"];
    assert_eq!(words(&received), expected);
    assert_eq!(
        received[1].header("webhook-id"),
        received[2].header("webhook-id")
    );
    // Delivered events are not delivered again.
    let rig = Rig::open(rig.close().await, quick()).await;
    assert_eq!(rig.push.active(), 0);
    assert_eq!(hook.received().len(), 4);
}

/// A crash writes no final record of the deliveries. After the crash, events are repeated, but no event is missing.
#[tokio::test]
async fn crash_repeats_events_and_loses_none() {
    let hook = Receiver::answering(|count| match count {
        3 => HookAnswer::Hang,
        _ => HookAnswer::Status(200),
    })
    .await;
    let never = quick().cursor_delay(Duration::from_hours(1));
    let rig = Rig::start(never).await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    hook.wait_for(3).await;
    // Uses force at once, so the deliveries write no more records.
    rig.stop_push(Duration::ZERO).await;
    let rig = Rig::open(rig.close().await, quick()).await;
    rig.active(0).await;
    let received = hook.received();
    let (before, after) = received.split_at(3);
    assert_eq!(words(before), ["working", "artifactUpdate", "completed"]);
    let words_after = words(after);
    assert!(
        ["working", "artifactUpdate", "completed"]
            .ends_with(&words_after.iter().map(String::as_str).collect::<Vec<_>>()),
        "{words_after:?}"
    );
    let last = |events: &[ReceivedEvent]| events.last().map(ReceivedEvent::number);
    assert_eq!(last(before), last(after));
}

/// A newer version of Allstop wrote a record of the task.
#[tokio::test]
async fn delivery_for_an_unreadable_task_ends_and_keeps_its_configuration() {
    let hook = Receiver::answering(|count| match count {
        2 => HookAnswer::Hang,
        _ => HookAnswer::Status(200),
    })
    .await;
    let rig = Rig::start(quick()).await;
    let task = rig.send("echo", &json!({"url": hook.url()})).await;
    hook.wait_for(2).await;
    rig.task_has_ended(&task).await;
    let log = rig.close().await;
    let stream = StreamName::new(format!("task/{task}"));
    let stored = log.read(&stream, Version(1), 100).await.expect("memory");
    let (last, _) = stored.last().expect("records");
    let newer = vec!["{\"v\":900,\"type\":\"dream\"}".into()];
    let appended = log.append(&stream, *last, AppendId(9), newer).await;
    appended.expect("memory");
    let rig = Rig::open(log, quick()).await;
    rig.active(0).await;
    // The task and its configuration.
    assert_eq!(rig.log.list("").await.expect("memory").len(), 2);
    assert_eq!(hook.received().len(), 2);
}
