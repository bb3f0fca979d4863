//! Lists of tasks: the same checks and fields in all bindings, and tasks that cannot be read.

use std::sync::Arc;

use a2a_pb::proto::ListTasksRequest;
use a2a_pb::proto::a2a_service_client::A2aServiceClient;
use allstop_log::{AppendIds, Log, MemoryLog, StreamName, Version};
use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::support::{
    answer, error_code, get, message, post, result, router, router_over_log, rpc,
};

const UNREADABLE: &str = "https://allstop.dev/a2a/unreadable/v1";

#[tokio::test]
async fn json_bindings_check_the_page_size() {
    let router = router().await;
    for size in [0, -1, 101, i64::MAX] {
        for params in [
            json!({"pageSize": size}),
            json!({"pageSize": size.to_string()}),
        ] {
            let code = error_code(&router, "ListTasks", &params).await;
            assert_eq!(code, -32602, "{params}");
        }
        let (status, body) = answer(&router, get(&format!("/tasks?pageSize={size}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{size}: {body}");
    }
    for size in [1, 100] {
        let listed = result(&router, "ListTasks", &json!({"pageSize": size})).await;
        assert_eq!(listed["pageSize"], size);
    }
    let listed = result(&router, "ListTasks", &Value::Null).await;
    assert_eq!(listed["pageSize"], 50);
}

/// The JSON mapping of Protocol Buffers accepts an integer with a fraction of zero, and one in a string.
#[tokio::test]
async fn integer_fields_accept_integral_floats() {
    let router = router().await;
    for size in [json!(7.0), json!(0.7e1), json!("7"), json!("7.0")] {
        let params = json!({"pageSize": size, "historyLength": 1.0});
        let listed = result(&router, "ListTasks", &params).await;
        assert_eq!(listed["pageSize"], 7, "{size}");
    }
    // Regression: these queries were refused.
    for size in ["7.0", "0.7e1", "7"] {
        let path = format!("/tasks?pageSize={size}&historyLength=1.0");
        let (status, body) = answer(&router, get(&path)).await;
        assert_eq!(status, StatusCode::OK, "{size}: {body}");
        assert_eq!(body["pageSize"], 7, "{size}: {body}");
    }
    for size in ["7.5", "1e10", "101.0"] {
        let (status, body) = answer(&router, get(&format!("/tasks?pageSize={size}"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{size}: {body}");
    }
    for size in [json!(7.5), json!("7.5"), json!(1e10)] {
        let code = error_code(&router, "ListTasks", &json!({"pageSize": size})).await;
        assert_eq!(code, -32602, "{size}");
    }
    let mut sent = message("m", "echo");
    sent["configuration"] = json!({"historyLength": 310.0});
    let task = result(&router, "SendMessage", &sent).await["task"].take();
    let found = json!({"id": task["id"], "historyLength": 310.0});
    assert_eq!(result(&router, "GetTask", &found).await["id"], task["id"]);
    sent["message"]["messageId"] = "m2".into();
    for path in ["/message:send", "/message:stream"] {
        let response = router.clone().oneshot(post(path, sent.to_string())).await;
        assert_eq!(response.unwrap().status(), StatusCode::OK, "{path}");
    }
}

/// The page size in the answer over gRPC.
async fn grpc_page_size(router: &Router, page_size: Option<i32>) -> Result<i32, Status> {
    let mut request = tonic::Request::new(ListTasksRequest {
        page_size,
        ..ListTasksRequest::default()
    });
    let metadata = request.metadata_mut();
    metadata.insert("authorization", "alice".parse().expect("a name"));
    metadata.insert("a2a-version", "1.0".parse().expect("a version"));
    let mut client = A2aServiceClient::new(router.clone());
    let listed = client.list_tasks(request).await?;
    Ok(listed.into_inner().page_size)
}

/// An absent page size means the default. Zero is not absent, because the field is optional in the protocol.
#[tokio::test]
async fn grpc_checks_the_page_size() {
    let router = router().await;
    for wrong in [0, -1, i32::MIN, 101] {
        let refused = grpc_page_size(&router, Some(wrong)).await;
        let status = refused.expect_err("a wrong size");
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong}: {status:?}");
        let expected = "pageSize must be 1 to 100";
        assert!(status.message().contains(expected), "{status:?}");
    }
    for (size, expected) in [(None, 50), (Some(1), 1), (Some(100), 100)] {
        let listed = grpc_page_size(&router, size).await;
        assert_eq!(listed.expect("a page"), expected);
    }
}

/// The specification requires all four fields in each answer.
#[tokio::test]
async fn empty_list_has_all_fields() {
    let router = router().await;
    let expected = json!({"tasks": [], "totalSize": 0, "pageSize": 50, "nextPageToken": ""});
    let (status, body) = answer(&router, get("/tasks")).await;
    assert_eq!((status, body), (StatusCode::OK, expected.clone()));
    assert_eq!(result(&router, "ListTasks", &json!({})).await, expected);
}

#[tokio::test]
async fn invalid_list_request_is_an_error_of_json_rpc() {
    let router = router().await;
    for params in [
        json!({"pageSize": "ten"}),
        json!({"contextId": 7}),
        json!([1]),
    ] {
        assert_eq!(
            error_code(&router, "ListTasks", &params).await,
            -32602,
            "{params}"
        );
    }
    let request = rpc("ListTasks", &json!({"pageSize": 0}));
    let (_, body) = answer(&router, request).await;
    assert_eq!(
        (&body["jsonrpc"], &body["id"]),
        (&json!("2.0"), &json!("x"))
    );
}

async fn append(log: &dyn Log, id: &str, record: &str) {
    let stream = StreamName::new(format!("task/{id}"));
    let records = log.read(&stream, Version(1), 100).await.expect("memory");
    let (last, _) = records.last().expect("it has records");
    let record = record.as_bytes().to_vec().into();
    let appended = log.append(&stream, *last, AppendIds::new().next_id(), vec![record]);
    appended.await.expect("memory");
}

async fn ended_task(router: &Router, id: &str) -> String {
    let sent = result(router, "SendMessage", &message(id, "echo")).await;
    sent["task"]["id"].as_str().expect("an id").to_owned()
}

/// One task with a record of a newer version, and one with a damaged record.
#[tokio::test]
async fn unreadable_task_is_named_and_the_others_are_listed() {
    let log = Arc::new(MemoryLog::new());
    let router = router_over_log(Arc::clone(&log) as _).await;
    let (newer, damaged) = (
        ended_task(&router, "m1").await,
        ended_task(&router, "m2").await,
    );
    let whole = ended_task(&router, "m3").await;
    append(&*log, &newer, "{\"v\":900,\"type\":\"dream\"}").await;
    append(&*log, &damaged, "no JSON").await;
    let (status, rest_page) = answer(&router, get("/tasks")).await;
    assert_eq!(status, StatusCode::OK, "{rest_page}");
    let rpc_page = result(&router, "ListTasks", &json!({})).await;
    for listed in [rest_page, rpc_page] {
        assert_eq!(listed["totalSize"], 3, "{listed}");
        let task = |id: &str| {
            let tasks = listed["tasks"].as_array().expect("tasks").iter();
            let found = tasks.clone().find(|task| task["id"] == id);
            found.unwrap_or_else(|| panic!("{id}: {listed}")).clone()
        };
        assert!(task(&whole)["metadata"].is_null(), "{listed}");
        for (id, reason) in [(&newer, "has format 900"), (&damaged, "is invalid")] {
            let task = task(id);
            let entry = &task["metadata"][UNREADABLE];
            assert!(
                entry["reason"].as_str().expect("a reason").contains(reason),
                "{task}"
            );
            // The state before the record that cannot be read.
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
            assert!(task["contextId"].is_string(), "{task}");
        }
    }
    // A page with only this task works too, and reading it names the reason. Tasks of one millisecond have any order.
    let (mut pages, mut token) = (Vec::new(), Value::from(""));
    for _ in 0..3 {
        let next = json!({"pageSize": 1, "pageToken": token});
        let page = result(&router, "ListTasks", &next).await;
        pages.push(page["tasks"][0]["id"].clone());
        token = page["nextPageToken"].clone();
    }
    assert!(pages.contains(&json!(damaged)), "{pages:?}");
    let (_, body) = answer(&router, rpc("GetTask", &json!({"id": newer}))).await;
    let text = body["error"]["message"].as_str().expect("an error");
    assert!(
        text.contains("format 900") && !text.contains("later"),
        "{text}"
    );
}
