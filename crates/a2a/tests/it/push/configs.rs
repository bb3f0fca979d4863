//! Operations on webhook configurations: limits, pages, replacement, deletion, and configurations of other users.

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use serde_json::{Value, json};

use super::receiver::{HookAnswer, Receiver, words};
use super::rig::{Rig, quick};
use crate::support::{answer, error_code, get, message, post, result, router, rpc};

const CREATE: &str = "CreateTaskPushNotificationConfig";
const GET: &str = "GetTaskPushNotificationConfig";
const LIST: &str = "ListTaskPushNotificationConfigs";
const DELETE: &str = "DeleteTaskPushNotificationConfig";

async fn ended_task(rig: &Rig) -> Value {
    result(&rig.router, "SendMessage", &message("m", "echo")).await["task"]["id"].clone()
}

#[tokio::test]
async fn card_reports_support_for_push_notifications() {
    let path = "/.well-known/agent-card.json";
    let with = answer(&Rig::start(quick()).await.router, get(path)).await.1;
    assert_eq!(with["capabilities"]["pushNotifications"], true);
    let router = router().await;
    let without = answer(&router, get(path)).await.1;
    assert_eq!(without["capabilities"]["pushNotifications"], false);
    let task = result(&router, "SendMessage", &message("m", "echo")).await["task"]["id"].clone();
    let params = json!({"taskId": task, "id": "c", "url": "https://example.com/"});
    for method in [CREATE, GET, LIST, DELETE] {
        assert_eq!(
            error_code(&router, method, &params).await,
            -32003,
            "{method}"
        );
    }
}

#[tokio::test]
async fn configuration_is_created_read_replaced_and_deleted() {
    let rig = Rig::start(quick()).await;
    let task = ended_task(&rig).await;
    let given = json!({
        "taskId": task, "id": "c", "url": "https://example.com/a", "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "s"},
    });
    assert_eq!(result(&rig.router, CREATE, &given).await, given);
    let named = json!({"taskId": task, "id": "c"});
    assert_eq!(result(&rig.router, GET, &named).await, given);
    let replacement = json!({"taskId": task, "id": "c", "url": "https://example.com/b"});
    result(&rig.router, CREATE, &replacement).await;
    let listed = result(&rig.router, LIST, &json!({"taskId": task})).await;
    assert_eq!(listed["configs"], json!([replacement]));
    for _ in 0..2 {
        result(&rig.router, DELETE, &named).await;
    }
    assert_eq!(error_code(&rig.router, GET, &named).await, -32001);
    // If the client sends no id, the server creates one.
    let made = rig
        .create(
            task.as_str().expect("an id"),
            json!({"url": "https://example.com/"}),
        )
        .await;
    assert!(!made["id"].as_str().expect("an id").is_empty());
    // The configuration is also available over REST.
    let path = format!(
        "/tasks/{}/pushNotificationConfigs",
        task.as_str().expect("an id")
    );
    let (status, body) = answer(
        &rig.router,
        post(
            &path,
            json!({"id": "r", "url": "https://example.com/"}).to_string(),
        ),
    )
    .await;
    assert_eq!(
        (status, &body["id"]),
        (StatusCode::OK, &json!("r")),
        "{body}"
    );
    let (status, body) = answer(&rig.router, get(&format!("{path}/r"))).await;
    assert_eq!((status, &body["id"]), (StatusCode::OK, &json!("r")));
    let (status, body) = answer(&rig.router, get(&format!("{path}?pageSize=1"))).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["configs"].as_array().map(Vec::len), Some(1), "{body}");
}

#[tokio::test]
async fn pages_have_every_configuration_once() {
    let rig = Rig::start(quick()).await;
    let task = ended_task(&rig).await;
    let ids = ["e", "b", "d", "a", "c"];
    for id in ids {
        rig.create(
            task.as_str().expect("an id"),
            json!({"id": id, "url": "https://example.com/"}),
        )
        .await;
    }
    for size in 1..=6 {
        let (mut found, mut token) = (Vec::new(), String::new());
        for _ in 0..10 {
            let params = json!({"taskId": task, "pageSize": size, "pageToken": token});
            let page = result(&rig.router, LIST, &params).await;
            let configs = page["configs"].as_array().cloned().unwrap_or_default();
            assert!(configs.len() <= size);
            found.extend(
                configs
                    .iter()
                    .map(|config| config["id"].as_str().expect("an id").to_owned()),
            );
            page["nextPageToken"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(found, ["a", "b", "c", "d", "e"], "pages of {size}");
    }
    for wrong in [json!({"pageSize": -1}), json!({"pageToken": "%"})] {
        let mut params = wrong;
        params["taskId"] = task.clone();
        assert_eq!(error_code(&rig.router, LIST, &params).await, -32602);
    }
}

#[tokio::test]
async fn fields_and_number_of_configurations_are_limited() {
    let rig = Rig::start(quick()).await;
    let task = ended_task(&rig).await;
    let long = "x".repeat(10_000);
    for (field, value) in [
        ("id", json!(long)),
        ("id", json!("a\nb")),
        ("url", json!(format!("https://example.com/{long}"))),
        ("url", json!("")),
        ("token", json!(long)),
        ("token", json!("a\r\nX-Injected: b")),
        ("token", json!("ü")),
        (
            "authentication",
            json!({"scheme": "Bearer", "credentials": long}),
        ),
        (
            "authentication",
            json!({"scheme": "Bearer", "credentials": "a\r\nb: c"}),
        ),
        (
            "authentication",
            json!({"scheme": "Be arer", "credentials": "s"}),
        ),
        (
            "authentication",
            json!({"scheme": long, "credentials": "s"}),
        ),
        ("authentication", json!({"scheme": "", "credentials": "s"})),
    ] {
        let mut params = json!({"taskId": task, "url": "https://example.com/"});
        params[field] = value;
        assert_eq!(
            error_code(&rig.router, CREATE, &params).await,
            -32602,
            "{field}"
        );
    }
    let config =
        |id: usize| json!({"taskId": task, "id": id.to_string(), "url": "https://example.com/"});
    for id in 0..10 {
        result(&rig.router, CREATE, &config(id)).await;
    }
    assert_eq!(error_code(&rig.router, CREATE, &config(10)).await, -32602);
    // A replacement does not count as an additional configuration.
    result(&rig.router, CREATE, &config(9)).await;
}

/// Many clients change configurations at the same time: each change builds on the preceding changes.
#[tokio::test]
async fn concurrent_changes_do_not_lose_one() {
    let rig = Rig::start(quick()).await;
    let task = ended_task(&rig).await;
    let creating = (0..10).map(|id| {
        let params = json!({"taskId": task, "id": id.to_string(), "url": "https://example.com/"});
        let router = rig.router.clone();
        async move { result(&router, CREATE, &params).await }
    });
    futures::future::join_all(creating).await;
    let listed = result(&rig.router, LIST, &json!({"taskId": task})).await;
    assert_eq!(listed["configs"].as_array().map(Vec::len), Some(10));
}

#[tokio::test]
async fn task_of_another_user_is_not_found() {
    let rig = Rig::start(quick()).await;
    let task = ended_task(&rig).await;
    rig.create(
        task.as_str().expect("an id"),
        json!({"id": "c", "url": "https://example.com/"}),
    )
    .await;
    for method in [CREATE, GET, LIST, DELETE] {
        for id in [task.clone(), json!("none")] {
            let params = json!({"taskId": id, "id": "c", "url": "https://example.com/"});
            let mut request: Request<Body> = rpc(method, &params);
            let mallory = HeaderValue::from_static("mallory");
            request.headers_mut().insert("authorization", mallory);
            let (_, body) = answer(&rig.router, request).await;
            assert_eq!(body["error"]["code"], -32001, "{method}: {body}");
        }
    }
    let listed = result(&rig.router, LIST, &json!({"taskId": task})).await;
    assert_eq!(listed["configs"][0]["id"], "c");
}

#[tokio::test]
async fn deletion_ends_deliveries_also_one_that_hangs() {
    let rig = Rig::start(quick()).await;
    let (deleted, kept) = (
        Receiver::answering(|_| HookAnswer::Hang).await,
        Receiver::start().await,
    );
    let task = rig
        .send("wait", &json!({"id": "deleted", "url": deleted.url()}))
        .await;
    deleted.wait_for(1).await;
    rig.create(&task, json!({"id": "kept", "url": kept.url()}))
        .await;
    result(
        &rig.router,
        DELETE,
        &json!({"taskId": task, "id": "deleted"}),
    )
    .await;
    let left = (rig.push.active(), rig.running());
    assert_eq!(left, (1, 1), "only the other one runs");
    rig.cancel(&task).await;
    rig.active(0).await;
    assert_eq!(
        words(&kept.received()).last().map(String::as_str),
        Some("canceled")
    );
    assert_eq!(deleted.received().len(), 1);
}

/// A client may repeat a message because the response was lost. The repeated message sets no second configuration.
#[tokio::test]
async fn repeated_message_sets_its_configuration_once() {
    let (rig, hook) = (Rig::start(quick()).await, Receiver::start().await);
    let webhook = json!({"url": hook.url()});
    let task = rig.send("echo", &webhook).await;
    assert_eq!(rig.send("echo", &webhook).await, task);
    rig.active(0).await;
    assert_eq!(hook.received().len(), 3);
    let listed = result(&rig.router, LIST, &json!({"taskId": task})).await;
    assert_eq!(listed["configs"].as_array().map(Vec::len), Some(1));
}
