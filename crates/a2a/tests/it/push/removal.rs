//! Removal of ended tasks: their configurations go with them, and pending deliveries keep them.

use std::sync::Arc;
use std::time::Duration;

use allstop_log::{Log, StreamName};
use allstop_task::{NoContextData, RemovalReport, RetentionLimits, TaskAttachment, TaskRetention};
use serde_json::json;

use super::receiver::{HookAnswer, Receiver};
use super::rig::{Rig, quick};
use crate::support::{error_code, result};

/// Removes all ended tasks.
async fn remove_ended(rig: &Rig) -> RemovalReport {
    let retention = TaskRetention {
        limits: RetentionLimits::default().age_max(Duration::ZERO),
        contexts: Arc::new(NoContextData),
        attachments: vec![Arc::new(rig.push.clone()) as Arc<dyn TaskAttachment>],
    };
    // A task is old only when its last record is from an earlier millisecond.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let removed = rig.manager.remove_ended(&retention).await;
    removed.expect("the store works")
}

async fn streams(log: &Arc<dyn Log>) -> Vec<StreamName> {
    let streams = log.list("").await.expect("a list");
    streams.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn configurations_go_with_their_task() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let task = rig.send("echo", &json!({"url": hook.url()})).await;
    rig.active(0).await;
    rig.task_has_ended(&task).await;
    assert_eq!(streams(&rig.log).await.len(), 2);
    assert_eq!(remove_ended(&rig).await.removed, 1);
    assert_eq!(streams(&rig.log).await, []);
    let (get, list) = (
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
    );
    let named = json!({"taskId": task, "id": "any"});
    assert_eq!(
        error_code(&rig.router, "GetTask", &json!({"id": task})).await,
        -32001
    );
    assert_eq!(error_code(&rig.router, get, &named).await, -32001);
    assert_eq!(error_code(&rig.router, list, &named).await, -32001);
    let rig = Rig::open(rig.close().await, quick()).await;
    assert_eq!(rig.push.active(), 0);
}

#[tokio::test]
async fn task_stays_until_its_events_are_delivered() {
    let hook = Receiver::answering(|_| HookAnswer::Hang).await;
    let rig = Rig::start(quick()).await;
    let task = rig.send("echo", &json!({"url": hook.url()})).await;
    rig.task_has_ended(&task).await;
    let report = remove_ended(&rig).await;
    assert_eq!((report.removed, report.in_use), (0, 1));
    assert_eq!(streams(&rig.log).await.len(), 2);
    let of_task = json!({"taskId": task});
    let configs = result(&rig.router, "ListTaskPushNotificationConfigs", &of_task).await;
    let id = configs["configs"][0]["id"].clone();
    let named = json!({"taskId": task, "id": id});
    result(&rig.router, "DeleteTaskPushNotificationConfig", &named).await;
    assert_eq!(remove_ended(&rig).await.removed, 1);
    assert_eq!(streams(&rig.log).await, []);
}

/// The configuration was set while the task was deleted.
#[tokio::test]
async fn configuration_without_a_task_is_deleted() {
    let hook = Receiver::answering(|_| HookAnswer::Hang).await;
    let rig = Rig::start(quick()).await;
    let task = rig.send("echo", &json!({"url": hook.url()})).await;
    rig.task_has_ended(&task).await;
    let version = rig.manager.last_event(&task.as_str().into()).await;
    let log = rig.close().await;
    let name = StreamName::new(format!("task/{task}"));
    let gone = log.delete_unchanged(vec![(name, version.expect("it exists"))]);
    assert_eq!(gone.await.expect("the store works").len(), 1);
    let rig = Rig::open(log, quick()).await;
    rig.active(0).await;
    assert_eq!(streams(&rig.log).await, []);
}
