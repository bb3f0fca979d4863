//! Webhooks that a client of version 0.3 has set.

use serde_json::{Value, json};

use super::receiver::Receiver;
use super::rig::{Rig, quick};
use crate::support::{answer, result, rpc};

async fn call(rig: &Rig, method: &str, params: &Value) -> Value {
    let mut request = rpc(method, params);
    request.headers_mut().remove("a2a-version");
    let (_, mut body) = answer(&rig.router, request).await;
    assert!(body.get("error").is_none(), "{body}");
    body["result"].take()
}

/// Sends a message that is not waited for. Returns the id of the task.
async fn send(rig: &Rig, text: &str, webhook: &Value) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    let mut params = json!({"message": {"messageId": text, "role": "user", "parts": parts}});
    params["configuration"] = json!({"blocking": false, "pushNotificationConfig": webhook});
    call(rig, "message/send", &params).await["id"].take()
}

#[tokio::test]
async fn webhook_gets_the_task_after_each_change_of_its_status() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let webhook = json!({"url": hook.url(), "token": "the-token"});
    let id = send(&rig, "echo", &webhook).await;
    rig.active(0).await;
    let received = hook.received();
    assert_eq!(received.len(), 2, "working and completed: {received:?}");
    for event in &received {
        assert_eq!(event.header("content-type"), "application/json");
        assert_eq!(event.header("x-a2a-notification-token"), "the-token");
        assert_eq!(
            (&event.json()["kind"], &event.json()["id"]),
            (&json!("task"), &id)
        );
    }
    let last = received[1].json();
    assert_eq!(last["status"]["state"], "completed");
    assert_eq!(last["artifacts"][0]["parts"][0]["kind"], "text");
}

#[tokio::test]
async fn webhook_is_set_read_listed_and_deleted() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let id = send(&rig, "wait", &json!(null)).await;
    let url = hook.url();
    let set = |config: Value| json!({"taskId": id, "pushNotificationConfig": config});
    let first = json!({
        "id": "first", "url": url, "token": "s",
        "authentication": {"schemes": ["Bearer"], "credentials": "x"},
    });
    let second = json!({"id": "second", "url": url});
    for config in [&first, &second] {
        let params = set(config.clone());
        let stored = call(&rig, "tasks/pushNotificationConfig/set", &params).await;
        assert_eq!(stored, params);
    }
    let get = "tasks/pushNotificationConfig/get";
    let named = json!({"id": id, "pushNotificationConfigId": "second"});
    assert_eq!(call(&rig, get, &named).await, set(second.clone()));
    // Without the id of a configuration, the first one.
    assert_eq!(
        call(&rig, get, &json!({"id": id})).await,
        set(first.clone())
    );
    let list = "tasks/pushNotificationConfig/list";
    assert_eq!(
        call(&rig, list, &json!({"id": id})).await,
        json!([set(first), set(second)])
    );
    let deleted = call(&rig, "tasks/pushNotificationConfig/delete", &named).await;
    assert_eq!(deleted, Value::Null);
    let left = call(&rig, list, &json!({"id": id})).await;
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    // Version 1 reads this configuration.
    let params = json!({"taskId": id});
    let listed = result(&rig.router, "ListTaskPushNotificationConfigs", &params).await;
    assert_eq!(listed["configs"][0]["id"], "first", "{listed}");
    rig.cancel(id.as_str().expect("an id")).await;
}

/// A client without ids has one webhook.
#[tokio::test]
async fn configuration_without_an_id_replaces_the_earlier_one() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let webhook = json!({"url": hook.url(), "token": "old"});
    let id = send(&rig, "wait", &webhook).await;
    let params = json!({"taskId": id, "pushNotificationConfig": {"url": hook.url()}});
    call(&rig, "tasks/pushNotificationConfig/set", &params).await;
    let list = "tasks/pushNotificationConfig/list";
    let listed = call(&rig, list, &json!({"id": id})).await;
    let config = json!({"id": "default", "url": hook.url()});
    assert_eq!(
        listed,
        json!([{"taskId": id, "pushNotificationConfig": config}])
    );
    rig.cancel(id.as_str().expect("an id")).await;
}
