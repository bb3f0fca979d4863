//! Input of hostile clients: ids that are paths, text that would end a header or an event, and wrong types.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{answer, get, message, post, result, router, rpc};

#[tokio::test]
async fn ids_that_are_paths_are_not_found() {
    let router = router().await;
    for id in [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "..",
        "%00",
        "%0d%0ax-injected:%201",
        "%ff%fe",
        "a%2f..%2fb",
        "%",
        &"x".repeat(10_000),
    ] {
        for request in [
            get(&format!("/tasks/{id}")),
            post(&format!("/tasks/{id}:cancel"), ""),
            post(&format!("/tasks/{id}:subscribe"), ""),
            get(&format!("/tasks/{id}/pushNotificationConfigs/{id}")),
        ] {
            let uri = request.uri().to_string();
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status();
            // This router serves no push notifications.
            assert!(
                status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED,
                "{uri}: {status}"
            );
            assert!(response.headers().get("x-injected").is_none(), "{uri}");
        }
    }
    for id in ["../../etc/passwd", "", "a\u{0}b", "a\r\nb"] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let (_, body) = answer(&router, rpc(method, &json!({"id": id}))).await;
            let code = body["error"]["code"].as_i64();
            assert!(
                matches!(code, Some(-32001 | -32602)),
                "{method} {id:?}: {body}"
            );
        }
    }
}

/// A task of another principal (another authenticated user) is not found over REST.
#[tokio::test]
async fn tasks_of_others_are_not_found_over_rest() {
    let router = router().await;
    let asked = result(&router, "SendMessage", &message("m", "ask")).await;
    let id = asked["task"]["id"].as_str().unwrap().to_owned();
    let mut follow_up = message("m2", "echo");
    follow_up["message"]["taskId"] = id.clone().into();
    let follow_up = follow_up.to_string();
    for mut request in [
        get(&format!("/tasks/{id}")),
        post(&format!("/tasks/{id}:cancel"), ""),
        post(&format!("/tasks/{id}/cancel"), ""),
        post(&format!("/tasks/{id}:subscribe"), ""),
        get(&format!("/tasks/{id}:subscribe")),
        get(&format!("/tasks/{id}/subscribe")),
        post("/message:send", follow_up.clone()),
        post("/message:stream", follow_up.clone()),
        post("/message/send", follow_up),
    ] {
        let bob = "bob".parse().unwrap();
        request.headers_mut().insert("authorization", bob);
        let uri = request.uri().to_string();
        let (status, body) = answer(&router, request).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{uri}: {body}");
    }
    let (_, task) = answer(&router, get(&format!("/tasks/{id}"))).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
}

/// A client's text cannot end an event of a stream and begin another event.
#[tokio::test]
async fn line_ends_do_not_break_streams() {
    let router = router().await;
    let injected = "x\r\n\r\nevent: injected\nid: 99\ndata: injected\n\n";
    let body = json!({
        "jsonrpc": "2.0", "id": injected, "method": "SendStreamingMessage",
        "params": message("m", &format!("echo {injected}")),
    });
    let response = router
        .clone()
        .oneshot(post("/", body.to_string()))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
    for line in text.lines() {
        assert!(!line.starts_with("event: injected"), "{text}");
        assert!(!line.starts_with("data: injected"), "{text}");
        assert_ne!(line, "id: 99", "{text}");
    }
}

#[tokio::test]
async fn wrong_types_over_rest_are_client_errors() {
    let router = router().await;
    let mut bodies = vec![
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        "{}".to_owned(),
        "{\"message\": 7}".to_owned(),
        "\u{feff}{}".to_owned(),
        "[".repeat(100_000),
    ];
    for (field, value) in [
        ("messageId", json!(7)),
        ("parts", json!("text")),
        ("parts", json!([7])),
        ("parts", json!([{"text": "a", "url": "b"}])),
        ("parts", json!([{"raw": "not base64!"}])),
        ("role", json!("ROLE_KING")),
        ("metadata", json!([])),
    ] {
        let mut params = message("m", "echo");
        params["message"][field] = value;
        bodies.push(params.to_string());
    }
    for body in bodies {
        for path in ["/message:send", "/message:stream"] {
            let (status, answered) = answer(&router, post(path, body.clone())).await;
            let begin: String = body.chars().take(80).collect();
            assert!(
                status.is_client_error(),
                "{path} {begin}: {status} {answered}"
            );
        }
    }
    let latin = vec![b'"', 0xe4, b'"'];
    let (status, _) = answer(&router, post("/message:send", latin)).await;
    assert!(status.is_client_error());
    for query in [
        "pageSize=many",
        "historyLength=1e10",
        "status=EVERY",
        "statusTimestampAfter=yesterday",
        "includeArtifacts=perhaps",
        "pageToken=%0d%0a",
    ] {
        let (status, answered) = answer(&router, get(&format!("/tasks?{query}"))).await;
        assert!(status.is_client_error(), "{query}: {status} {answered}");
    }
}

/// The agent cannot use every id of a context. A task with such an id would fail.
#[tokio::test]
async fn context_id_that_the_agent_refuses_starts_no_task() {
    let router = router().await;
    let mut params = message("m", "echo");
    params["message"]["contextId"] = "a b".into();
    for method in ["SendMessage", "SendStreamingMessage"] {
        let (_, body) = answer(&router, rpc(method, &params)).await;
        assert_eq!(body["error"]["code"], -32602, "{body}");
        let text = body["error"]["message"].as_str().unwrap();
        assert!(
            text.contains("contextId: use an id without blanks"),
            "{text}"
        );
    }
    let (status, _) = answer(&router, post("/message:send", params.to_string())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let listed = result(&router, "ListTasks", &json!({})).await;
    assert_eq!(listed["totalSize"], 0);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let router = router().await;
    for (method, path) in [
        ("DELETE", "/"),
        ("PUT", "/message:send"),
        ("GET", "/message:send"),
        ("GET", "/../etc/passwd"),
        ("GET", "//"),
        ("POST", "/lf.a2a.v1.A2AService/Nothing"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", "alice");
        let request = request.header("a2a-version", "1.0");
        let response = router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await;
        let response = response.unwrap();
        let is_refused = response.status().is_client_error()
            || response
                .headers()
                .get("grpc-status")
                .is_some_and(|status| status != "0");
        assert!(is_refused, "{method} {path}: {}", response.status());
    }
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}]);
    let (_, body): (_, Value) = answer(&router, post("/", batch.to_string())).await;
    assert_eq!(body["error"]["code"], -32600, "A2A has no batches");
}

/// Without this check, the JSON library would read an object with a reserved key as a different value. That value could
/// be nested to any depth.
#[tokio::test]
async fn reserved_keys_are_refused() {
    let router = router().await;
    let data = json!({ "$serde_json::private::RawValue": "[1]" });
    let mut params = message("m", "echo");
    params["message"]["parts"] = json!([{ "data": data }]);
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    for (path, body) in [
        ("/", &rpc),
        ("/message:send", &params),
        ("/message:stream", &params),
        ("/tasks/t:cancel", &json!({ "metadata": data })),
    ] {
        let request = post(path, body.to_string());
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
    }
}
