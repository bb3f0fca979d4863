//! Each operation over JSON-RPC and REST, and the refused requests.

use std::collections::BTreeSet;

use allstop_a2a::RECEIPT_EXTENSION;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{answer, error_code, get, message, post, result, router, rpc};

#[tokio::test]
async fn message_is_answered_with_the_ended_task() {
    let router = router().await;
    let task = &result(&router, "SendMessage", &message("m", "echo")).await["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "result");
    let (status, body) = answer(
        &router,
        post("/message:send", message("m2", "echo").to_string()),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    // A repeated message returns the task of the first message.
    let again = result(&router, "SendMessage", &message("m", "echo")).await;
    assert_eq!(again["task"]["id"], task["id"]);
}

#[tokio::test]
async fn message_can_return_at_once() {
    let router = router().await;
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let task = &result(&router, "SendMessage", &params).await["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED");
}

#[tokio::test]
async fn agent_can_answer_with_a_message() {
    let router = router().await;
    let answer = result(&router, "SendMessage", &message("m", "reply")).await;
    assert_eq!(answer["message"]["parts"][0]["text"], "just a message");
    let listed = result(&router, "ListTasks", &json!({})).await;
    assert_eq!(listed["totalSize"].as_i64().unwrap_or(0), 0, "{listed}");
}

#[tokio::test]
async fn stopped_task_carries_its_receipt() {
    let router = router().await;
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &params).await["task"]["id"].clone();
    let cause = json!({RECEIPT_EXTENSION: {"cause": {"detail": "lunch", "by": "web"}}});
    let stopped = result(&router, "CancelTask", &json!({"id": id, "metadata": cause})).await;
    assert_eq!(stopped["status"]["state"], "TASK_STATE_CANCELED");
    let entry = &stopped["metadata"][RECEIPT_EXTENSION];
    assert_eq!(
        entry["cause"],
        json!({"kind": "user", "detail": "lunch", "by": "alice: web"})
    );
    assert_eq!(entry["receipt"]["quiet"], true);
    assert_eq!(
        entry["receipt"]["target"],
        format!("task/{}", id.as_str().unwrap())
    );
    // A second cancel of the stopped task returns an equal answer. A cancel of a completed task is refused.
    let again = result(&router, "CancelTask", &json!({"id": id})).await;
    assert_eq!(again["metadata"], stopped["metadata"]);
    let done = result(&router, "SendMessage", &message("m2", "echo")).await;
    let done = json!({"id": done["task"]["id"]});
    assert_eq!(error_code(&router, "CancelTask", &done).await, -32002);
    assert_eq!(
        error_code(&router, "CancelTask", &json!({"id": "none"})).await,
        -32001
    );
}

/// The body of the HTTP+JSON request can contain the cause of a stop.
#[tokio::test]
async fn cancellation_over_rest_names_its_cause() {
    let router = router().await;
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &params).await["task"]["id"].clone();
    let path = format!("/tasks/{}:cancel", id.as_str().unwrap());
    let cause = json!({RECEIPT_EXTENSION: {"cause": {"detail": "lunch", "by": "web"}}});
    // The path determines the task; an id in the body is ignored.
    let body = json!({"id": "another", "metadata": cause}).to_string();
    let (status, stopped) = answer(&router, post(&path, body)).await;
    assert_eq!(status, StatusCode::OK, "{stopped}");
    assert_eq!(stopped["id"], id);
    assert_eq!(
        stopped["metadata"][RECEIPT_EXTENSION]["cause"],
        json!({"kind": "user", "detail": "lunch", "by": "alice: web"})
    );
    // A request without a body.
    let (status, again) = answer(&router, post(&path, "")).await;
    assert_eq!((status, &again), (StatusCode::OK, &stopped));
}

#[tokio::test]
async fn task_that_asks_takes_the_next_message() {
    let router = router().await;
    let first = result(&router, "SendMessage", &message("m1", "ask")).await;
    assert_eq!(
        first["task"]["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
    let mut params = message("m2", "echo");
    params["message"]["taskId"] = first["task"]["id"].clone();
    let second = result(&router, "SendMessage", &params).await;
    assert_eq!(second["task"]["id"], first["task"]["id"]);
    assert_eq!(second["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    params["message"]["messageId"] = "m3".into();
    assert_eq!(error_code(&router, "SendMessage", &params).await, -32004);
}

#[tokio::test]
async fn failure_carries_its_reason() {
    let router = router().await;
    let failed = result(&router, "SendMessage", &message("m", "fail")).await;
    let task = &failed["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(task["metadata"][RECEIPT_EXTENSION]["error"], "as told");
    let message = &task["status"]["message"];
    assert_eq!(message["parts"][0]["text"], "as told", "{task}");
    let id = message["messageId"].as_str().expect("an id");
    assert!(id.ends_with("-error"), "{id}");
}

#[tokio::test]
async fn page_of_large_tasks_has_a_limited_size() {
    let router = router().await;
    let large = "x".repeat(1 << 20);
    for number in 0..6 {
        let message = message(&number.to_string(), &format!("echo {large}"));
        result(&router, "SendMessage", &message).await;
    }
    let (mut ids, mut token) = (BTreeSet::new(), json!(""));
    for _page in 0..6 {
        let params = json!({"historyLength": 10, "pageToken": token});
        let page = result(&router, "ListTasks", &params).await;
        let bytes = page.to_string().len();
        assert!(bytes < 7 << 19, "{bytes}");
        assert_eq!(page["totalSize"], 6);
        for task in page["tasks"].as_array().unwrap() {
            assert!(ids.insert(task["id"].to_string()), "it is listed once");
        }
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    assert_eq!((ids.len(), &token), (6, &json!("")));
}

#[tokio::test]
async fn list_has_pages() {
    let router = router().await;
    for number in 0..5 {
        result(
            &router,
            "SendMessage",
            &message(&format!("m{number}"), "echo"),
        )
        .await;
    }
    let first = result(&router, "ListTasks", &json!({"pageSize": 3})).await;
    assert_eq!(first["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(first["totalSize"], 5);
    let token = first["nextPageToken"].as_str().unwrap();
    let (_, second) = answer(
        &router,
        get(&format!("/tasks?pageSize=3&pageToken={token}")),
    )
    .await;
    assert_eq!(second["tasks"].as_array().unwrap().len(), 2);
    let (status, _) = answer(&router, get("/tasks?pageSize=0")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for wrong in [
        json!({"pageSize": 101}),
        json!({"pageToken": "../../etc/passwd"}),
    ] {
        assert_eq!(
            error_code(&router, "ListTasks", &wrong).await,
            -32602,
            "{wrong}"
        );
    }
}

/// Returns the request with `bob` as its principal (the authenticated user). A header claims to be `alice`.
fn by_bob(mut request: Request<Body>) -> Request<Body> {
    let headers = request.headers_mut();
    headers.insert("authorization", HeaderValue::from_static("bob"));
    headers.insert("x-allstop-principal", HeaderValue::from_static("alice"));
    request
}

/// All tasks of another principal are reported as not found, and no response reveals their existence.
#[tokio::test]
async fn tasks_of_others_are_not_found() {
    let router = router().await;
    let asked = result(&router, "SendMessage", &message("m", "ask")).await;
    let id = asked["task"]["id"].as_str().unwrap().to_owned();
    let as_bob = |method: &str, params: &Value| by_bob(rpc(method, params));
    let mut follow_up = message("m2", "echo");
    follow_up["message"]["taskId"] = id.clone().into();
    let mut wrong_context = message("m3", "echo");
    wrong_context["message"]["taskId"] = id.clone().into();
    wrong_context["message"]["contextId"] = "none".into();
    for (method, params) in [
        ("GetTask", json!({"id": id})),
        ("CancelTask", json!({"id": id})),
        ("SubscribeToTask", json!({"id": id})),
        ("SendMessage", follow_up.clone()),
        ("SendStreamingMessage", follow_up),
        ("SendMessage", wrong_context),
    ] {
        let (_, body) = answer(&router, as_bob(method, &params)).await;
        assert_eq!(body["error"]["code"], -32001, "{method}: {body}");
    }
    let (_, listed) = answer(&router, as_bob("ListTasks", &json!({}))).await;
    assert_eq!(
        listed["result"]["totalSize"].as_i64().unwrap_or(0),
        0,
        "{listed}"
    );
    // Message ids are separate for each owner.
    let (_, sent) = answer(&router, as_bob("SendMessage", &message("m", "echo"))).await;
    assert_ne!(sent["result"]["task"]["id"], id.as_str());
    assert_eq!(
        result(&router, "GetTask", &json!({"id": id})).await["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
}

/// A preview lists the calls and commands of a running task, so other principals must not receive the preview.
#[tokio::test]
async fn preview_of_another_principals_task_is_not_found() {
    let router = router().await;
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &params).await["task"]["id"].clone();
    let id = id.as_str().expect("an id");
    let preview = || post(&format!("/tasks/{id}:previewCancel"), "{}");
    let (status, theirs) = answer(&router, by_bob(preview())).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{theirs}");
    // The response for an unknown task is equal.
    let message = format!("task not found: {id}");
    assert_eq!(theirs["error"]["message"], message, "{theirs}");
    let (status, own) = answer(&router, preview()).await;
    assert_eq!((status, &own["preview"]), (StatusCode::OK, &json!(true)));
}

/// A filter selects only from the tasks of the requesting principal.
#[tokio::test]
async fn no_filter_lists_the_tasks_of_another_principal() {
    let router = router().await;
    let mut params = message("m", "ask");
    params["message"]["contextId"] = "c1".into();
    for id in ["m1", "m2"] {
        params["message"]["messageId"] = id.into();
        result(&router, "SendMessage", &params).await;
    }
    let first = result(&router, "ListTasks", &json!({"pageSize": 1})).await;
    for filter in [
        json!({"contextId": "c1"}),
        json!({"status": "TASK_STATE_INPUT_REQUIRED"}),
        json!({"statusTimestampAfter": "2000-01-01T00:00:00Z"}),
        json!({"pageSize": 1, "pageToken": first["nextPageToken"]}),
    ] {
        let own = result(&router, "ListTasks", &filter).await;
        assert_eq!(own["totalSize"], 2, "{filter}: {own}");
        let (_, theirs) = answer(&router, by_bob(rpc("ListTasks", &filter))).await;
        let theirs = &theirs["result"];
        let listed = theirs["tasks"].as_array().map_or(0, Vec::len);
        let total = theirs["totalSize"].as_i64().unwrap_or(0);
        assert!(theirs.is_object(), "{filter}: {theirs}");
        assert_eq!((listed, total), (0, 0), "{filter}: {theirs}");
    }
    let (status, theirs) = answer(&router, by_bob(get("/tasks?contextId=c1"))).await;
    let listed = theirs["tasks"].as_array().map_or(0, Vec::len);
    assert_eq!((status, listed), (StatusCode::OK, 0), "{theirs}");
}

#[tokio::test]
async fn request_without_credentials_is_refused_and_the_card_is_not() {
    let router = router().await;
    let mut request = rpc("ListTasks", &json!({}));
    request.headers_mut().remove("authorization");
    let (status, _) = answer(&router, request).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let card = Request::get("/.well-known/agent-card.json").body(Body::empty());
    let (status, card) = answer(&router, card.unwrap()).await;
    assert_eq!(
        (status, &card["name"]),
        (StatusCode::OK, &json!("obedient"))
    );
    assert_eq!(
        card["capabilities"]["extensions"][0]["uri"],
        RECEIPT_EXTENSION
    );
}

#[tokio::test]
async fn malformed_requests_have_their_own_errors() {
    let router = router().await;
    for (body, code) in [
        ("{", -32700),
        ("[]", -32600),
        (
            "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ListTasks\"}",
            -32600,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Nothing\"}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":7}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendStreamingMessage\",\"params\":7}",
            -32602,
        ),
    ] {
        let (status, answered) = answer(&router, post("/", body)).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(answered["error"]["code"], code, "{body}: {answered}");
    }
    for (field, value) in [
        ("messageId", json!("")),
        ("messageId", json!("x".repeat(300))),
        ("messageId", json!("line\nbreak")),
        ("role", json!("ROLE_AGENT")),
        ("parts", json!([])),
        ("contextId", json!("a\u{0}b")),
    ] {
        let mut params = message("m", "echo");
        params["message"][field] = value.clone();
        let code = error_code(&router, "SendMessage", &params).await;
        assert_eq!(code, -32602, "{field}: {value}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let (_, answered) = answer(&router, post("/", deep)).await;
    assert!(answered["error"]["code"].is_i64(), "{answered}");
}

#[tokio::test]
async fn other_versions_and_content_types_are_refused() {
    let router = router().await;
    for version in [None, Some("0.3"), Some("2.0"), Some("x")] {
        for mut request in [
            rpc("ListTasks", &json!({})),
            rpc("SendStreamingMessage", &message("m", "echo")),
            get("/tasks"),
            post("/message:stream", message("m", "echo").to_string()),
        ] {
            request.headers_mut().remove("a2a-version");
            if let Some(version) = version {
                request
                    .headers_mut()
                    .insert("a2a-version", version.parse().unwrap());
            }
            let (_, body) = answer(&router, request).await;
            let is_refused = body["error"]["code"] == -32009 || body["error"]["code"] == 400;
            assert!(is_refused, "{version:?}: {body}");
        }
    }
}

/// A web page of any origin can send a body that has no type, or the type of plain text.
#[tokio::test]
async fn request_that_is_not_declared_as_json_is_refused() {
    let router = router().await;
    for content_type in [None, Some("text/plain")] {
        for (mut request, code) in [
            (rpc("ListTasks", &json!({})), json!(-32005)),
            (
                post("/message:stream", message("m", "echo").to_string()),
                json!(400),
            ),
            (
                post("/message:send", message("n", "echo").to_string()),
                json!(400),
            ),
        ] {
            request.headers_mut().remove("content-type");
            if let Some(content_type) = content_type {
                let content_type = content_type.parse().unwrap();
                request.headers_mut().insert("content-type", content_type);
            }
            let (_, body) = answer(&router, request).await;
            assert_eq!(body["error"]["code"], code, "{content_type:?}: {body}");
        }
    }
    let list = result(&router, "ListTasks", &json!({})).await;
    assert_eq!(list["tasks"], json!([]));
}

/// A2A 1.0.1 prefers the media type of A2A, and 1.0.0 requires the media type of JSON.
#[tokio::test]
async fn response_has_the_media_type_that_the_request_names() {
    let router = router().await;
    let a2a = "application/a2a+json";
    for (header, value, expected) in [
        ("accept", "*/*", "application/json"),
        (
            "accept",
            "application/json, application/a2a+json;q=0.9",
            a2a,
        ),
        ("content-type", a2a, a2a),
    ] {
        let mut request = post("/message:send", message(value, "echo").to_string());
        request.headers_mut().insert(header, value.parse().unwrap());
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(
            response.headers()["content-type"],
            expected,
            "{header}: {value}"
        );
    }
}

/// Section 5.4 of A2A 1.0.1.
#[tokio::test]
async fn errors_have_the_specified_status() {
    let router = router().await;
    let mut text = post("/message:send", "hello");
    text.headers_mut()
        .insert("content-type", "text/plain".parse().unwrap());
    let mut old = get("/tasks");
    old.headers_mut()
        .insert("a2a-version", "2.0".parse().unwrap());
    for (request, word, reason) in [
        (text, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
        (old, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    ] {
        let (status, body) = answer(&router, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        let error = &body["error"];
        assert_eq!(
            (&error["code"], &error["status"]),
            (&json!(400), &json!(word))
        );
        assert_eq!(error["details"][0]["reason"], reason, "{body}");
    }
}

#[tokio::test]
async fn malformed_body_or_query_gets_the_error_object() {
    let router = router().await;
    for (method, path, body) in [
        ("POST", "/message:send", "xx"),
        ("GET", "/tasks?pageSize=x", ""),
    ] {
        let mut request = post(path, body);
        *request.method_mut() = method.parse().unwrap();
        let (status, body) = answer(&router, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {body}");
        assert_eq!(
            body["error"]["status"], "INVALID_ARGUMENT",
            "{path}: {body}"
        );
    }
}

#[tokio::test]
async fn stop_over_rest_keeps_its_reason_and_has_a_preview() {
    let router = router().await;
    let mut params = message("m", "wait");
    params["configuration"] = json!({"returnImmediately": true});
    let id = result(&router, "SendMessage", &params).await["task"]["id"].clone();
    let path = format!("/tasks/{}", id.as_str().expect("an id"));
    let (status, preview) = answer(&router, post(&format!("{path}:previewCancel"), "{}")).await;
    assert_eq!(status, StatusCode::OK, "{preview}");
    assert_eq!(
        (&preview["preview"], &preview["quiet"]),
        (&json!(true), &json!(false))
    );
    let cause = json!({RECEIPT_EXTENSION: {"cause": {"detail": "lunch", "by": "web"}}});
    let body = json!({"metadata": cause}).to_string();
    let (status, stopped) = answer(&router, post(&format!("{path}:cancel"), body)).await;
    assert_eq!(status, StatusCode::OK, "{stopped}");
    assert_eq!(
        stopped["metadata"][RECEIPT_EXTENSION]["cause"],
        json!({"kind": "user", "detail": "lunch", "by": "alice: web"})
    );
    let unknown = answer(&router, post("/tasks/nothing:previewCancel", "{}")).await;
    assert_eq!(unknown.0, StatusCode::NOT_FOUND);
}

/// Version 0.3 has separate paths, and its clients understand the errors of these paths.
#[tokio::test]
async fn paths_of_an_older_version_are_refused_by_name() {
    let router = router().await;
    for path in [
        "/v1/message:send",
        "/v1/message:stream",
        "/v1/tasks/x:cancel",
    ] {
        let mut request = post(path, "{}");
        request.headers_mut().remove("a2a-version");
        let (status, body) = answer(&router, request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        let message =
            "version not supported: 0.3 over this binding; version 0.3 is available over JSON-RPC";
        let error = json!({"type": "VersionNotSupportedError", "code": -32009, "message": message});
        assert_eq!(body, error, "{path}");
        let (status, _) = answer(&router, post(path, "{}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}
