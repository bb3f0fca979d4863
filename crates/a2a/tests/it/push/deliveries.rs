//! Successful deliveries: their order, headers and end.

use std::time::{Duration, Instant};

use allstop_a2a::PushOptions;
use serde_json::json;

use super::receiver::{HookAnswer, ReceivedEvent, Receiver, words};
use super::rig::{Rig, quick};
use crate::support::{message, result};

#[tokio::test]
async fn events_come_in_order_and_deliveries_end_with_the_task() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let webhook = json!({
        "url": hook.url(), "token": "the-token",
        "authentication": {"scheme": "Bearer", "credentials": "the-credentials"},
    });
    let task = rig.send("echo", &webhook).await;
    rig.active(0).await;
    let received = hook.received();
    assert_eq!(words(&received), ["working", "artifactUpdate", "completed"]);
    let numbers: Vec<_> = received.iter().map(ReceivedEvent::number).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let mut ids: Vec<_> = received
        .iter()
        .map(|event| event.header("webhook-id"))
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    for event in &received {
        assert_eq!(event.path, "/hook");
        assert_eq!(event.header("content-type"), "application/a2a+json");
        assert_eq!(event.header("x-a2a-notification-token"), "the-token");
        assert_eq!(event.header("authorization"), "Bearer the-credentials");
        assert_eq!(event.header("webhook-signature"), "", "there is no secret");
        let json = event.json();
        let update = json
            .as_object()
            .expect("an object")
            .values()
            .next()
            .expect("a field");
        assert_eq!(update["taskId"], task);
    }
}

#[tokio::test]
async fn answer_without_a_task_is_delivered() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let mut params = message("m", "reply");
    params["configuration"] = json!({"taskPushNotificationConfig": {"url": hook.url()}});
    result(&rig.router, "SendMessage", &params).await;
    rig.active(0).await;
    assert_eq!(words(&hook.received()), ["message"]);
}

/// A configuration applies to all executions of its task that begin after the creation of the configuration.
#[tokio::test]
async fn configuration_of_a_waiting_task_gets_later_events() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let task =
        result(&rig.router, "SendMessage", &message("m1", "ask")).await["task"]["id"].clone();
    rig.create(task.as_str().expect("an id"), json!({"url": hook.url()}))
        .await;
    for (id, text) in [("m2", "ask"), ("m3", "echo")] {
        let mut params = message(id, text);
        params["message"]["taskId"] = task.clone();
        result(&rig.router, "SendMessage", &params).await;
    }
    rig.active(0).await;
    let expected = [
        "submitted",
        "input_required",
        "submitted",
        "working",
        "artifactUpdate",
        "completed",
    ];
    assert_eq!(words(&hook.received()), expected);
}

#[tokio::test]
async fn configuration_of_an_ended_task_leaves_no_work() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let task =
        result(&rig.router, "SendMessage", &message("m", "echo")).await["task"]["id"].clone();
    let task = task.as_str().expect("an id");
    let created = rig.create(task, json!({"url": hook.url()})).await;
    rig.active(0).await;
    assert!(hook.received().is_empty());
    let get = json!({"taskId": task, "id": created["id"]});
    assert_eq!(
        result(&rig.router, "GetTaskPushNotificationConfig", &get).await,
        created
    );
}

/// The failure G7 of another server: it calls the webhooks one by one, before it sends the event anywhere else.
#[tokio::test]
async fn g7_webhook_that_hangs_costs_nobody_anything() {
    let rig = Rig::start(
        quick()
            // No attempt ends during this test.
            .attempt_max(Duration::from_hours(1)),
    )
    .await;
    let (hanging, working) = (
        Receiver::answering(|_| HookAnswer::Hang).await,
        Receiver::start().await,
    );
    let begin = Instant::now();
    // More requests than are permitted to one host at the same time.
    for number in 0..40 {
        rig.send(
            "echo",
            &json!({"id": number.to_string(), "url": hanging.url()}),
        )
        .await;
    }
    hanging
        .wait_for(PushOptions::default().running_per_host_max)
        .await;
    // A task with a hanging webhook continues, and its other webhook receives every event.
    let task = rig
        .send("wait", &json!({"id": "slow", "url": hanging.url()}))
        .await;
    rig.create(&task, json!({"id": "fast", "url": working.url()}))
        .await;
    rig.cancel(&task).await;
    let received = working.wait_for(1).await;
    assert_eq!(
        received.last().map(ReceivedEvent::word).as_deref(),
        Some("canceled")
    );
    // Other tasks and their webhooks continue, too.
    let before = working.received().len();
    for number in 0..40 {
        rig.send(
            "echo",
            &json!({"id": number.to_string(), "url": working.url()}),
        )
        .await;
    }
    working.wait_for(before + 3 * 40).await;
    assert!(
        begin.elapsed() < Duration::from_secs(15),
        "{:?}",
        begin.elapsed()
    );
    let at_once = hanging.received().len();
    assert_eq!(at_once, PushOptions::default().running_per_host_max);
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_webhook_that_hangs() {
    let hook = Receiver::answering(|_| HookAnswer::Hang).await;
    let rig = Rig::start(quick()).await;
    rig.send("echo", &json!({"url": hook.url()})).await;
    hook.wait_for(1).await;
    let begin = Instant::now();
    let receipt = rig.stop_push(Duration::from_millis(100)).await;
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(receipt.items().len(), 1);
}
