//! Version 0.3 over JSON-RPC, on the address of version 1.

use allstop_a2a::RECEIPT_EXTENSION;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::{answer, get, post, router, rpc};

fn sent(text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"kind": "message", "messageId": text, "role": "user", "parts": parts}})
}

/// A request without a version, which has version 0.3.
fn call(method: &str, params: &Value) -> Request<Body> {
    let mut request = rpc(method, params);
    request.headers_mut().remove("a2a-version");
    request
}

async fn result(router: &Router, method: &str, params: &Value) -> Value {
    let (_, mut body) = answer(router, call(method, params)).await;
    assert_eq!(
        (&body["id"], &body["error"]),
        (&json!("x"), &Value::Null),
        "{body}"
    );
    body["result"].take()
}

async fn error(router: &Router, method: &str, params: &Value) -> Value {
    let (_, mut body) = answer(router, call(method, params)).await;
    assert_eq!(body["id"], "x", "{body}");
    body["error"].take()
}

/// The events of a stream: the ids, and the results or errors in their envelopes.
async fn events(router: &Router, request: Request<Body>) -> Vec<(Option<u64>, Value)> {
    let response = router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::OK);
    let content_type = response.headers()["content-type"].to_str().expect("ASCII");
    assert!(
        content_type.starts_with("text/event-stream"),
        "{content_type}"
    );
    let body = response.into_body().collect().await.expect("a body");
    let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    let parsed = events.map(|event| {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let mut data: Value = serde_json::from_str(field("data: ").expect("data")).expect("JSON");
        assert_eq!(
            (&data["jsonrpc"], &data["id"]),
            (&json!("2.0"), &json!("x"))
        );
        let payload = if data["error"].is_null() {
            "result"
        } else {
            "error"
        };
        (
            field("id: ").map(|id| id.parse().expect("a number")),
            data[payload].take(),
        )
    });
    parsed.collect()
}

#[tokio::test]
async fn message_is_answered_with_a_task_of_this_version() {
    let router = router().await;
    let task = result(&router, "message/send", &sent("echo")).await;
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&json!("task"), &json!("completed"))
    );
    let part = &task["artifacts"][0]["parts"][0];
    assert_eq!(part, &json!({"kind": "text", "text": "result"}));
    let got = result(&router, "tasks/get", &json!({"id": task["id"]})).await;
    assert_eq!(got["history"][0]["parts"][0]["kind"], "text");
    let reply = result(&router, "message/send", &sent("reply")).await;
    assert_eq!(
        (&reply["kind"], &reply["role"], &reply["parts"][0]["text"]),
        (&json!("message"), &json!("agent"), &json!("just a message"))
    );
    // Version 1 reads this task.
    let (_, new) = answer(&router, rpc("GetTask", &json!({"id": task["id"]}))).await;
    assert_eq!(new["result"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn only_blocking_false_returns_at_once_and_a_stop_has_its_receipt() {
    let router = router().await;
    let mut params = sent("wait");
    params["configuration"] = json!({"blocking": false});
    let task = result(&router, "message/send", &params).await;
    assert_eq!(task["status"]["state"], "submitted");
    let cause = json!({RECEIPT_EXTENSION: {"cause": {"detail": "lunch", "by": "web"}}});
    let params = json!({"id": task["id"], "metadata": cause});
    let stopped = result(&router, "tasks/cancel", &params).await;
    assert_eq!(stopped["status"]["state"], "canceled");
    let entry = &stopped["metadata"][RECEIPT_EXTENSION];
    assert_eq!(
        entry["cause"],
        json!({"kind": "user", "detail": "lunch", "by": "alice: web"})
    );
    assert_eq!(entry["receipt"]["quiet"], true);
}

#[tokio::test]
async fn stream_has_numbered_events_and_resumes() {
    let router = router().await;
    let all = events(&router, call("message/stream", &sent("echo"))).await;
    let kinds: Vec<_> = all.iter().map(|(_, event)| event["kind"].clone()).collect();
    assert_eq!(
        kinds,
        ["task", "status-update", "artifact-update", "status-update"]
    );
    let finals: Vec<_> = all
        .iter()
        .map(|(_, event)| event["final"].clone())
        .collect();
    assert_eq!(
        finals,
        [json!(null), json!(false), json!(null), json!(true)]
    );
    let (first, second) = (all[0].0.unwrap(), all[1].0.unwrap());
    assert!(first < second, "{all:?}");
    let mut request = call("tasks/resubscribe", &json!({"id": all[0].1["id"]}));
    let id = second.to_string().parse().unwrap();
    request.headers_mut().insert("last-event-id", id);
    assert_eq!(events(&router, request).await, all[2..]);
}

#[tokio::test]
async fn question_ends_the_stream_and_the_answer_continues_the_task() {
    let router = router().await;
    let asked = events(&router, call("message/stream", &sent("ask"))).await;
    let last = &asked.last().unwrap().1;
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("input-required"), &json!(true))
    );
    let mut params = sent("echo");
    params["message"]["taskId"] = last["taskId"].clone();
    let task = result(&router, "message/send", &params).await;
    assert_eq!(
        (&task["id"], &task["status"]["state"]),
        (&last["taskId"], &json!("completed"))
    );
}

#[tokio::test]
async fn reply_is_the_only_event_of_a_stream() {
    let router = router().await;
    let events = events(&router, call("message/stream", &sent("reply"))).await;
    let [(_, reply)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(reply["kind"], "message", "{reply}");
}

/// The Python client of this version fails for a message after a task.
#[tokio::test]
async fn late_reply_in_a_stream_ends_the_task_before_it() {
    let router = router().await;
    let events = events(&router, call("message/stream", &sent("late reply"))).await;
    let [(_, task), (_, last)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (&last["kind"], &last["taskId"], &last["final"]),
        (&json!("status-update"), &task["id"], &json!(true))
    );
    assert_eq!(last["status"]["state"], "completed");
    let text = &last["status"]["message"]["parts"][0]["text"];
    assert_eq!(text, "just a message");
}

/// The clients of this version read only events.
#[tokio::test]
async fn error_of_a_stream_is_an_event() {
    let router = router().await;
    let ended = result(&router, "message/send", &sent("echo")).await["id"].clone();
    for (method, params, code) in [
        ("tasks/resubscribe", json!({"id": ended}), -32004),
        ("tasks/resubscribe", json!({"id": "nothing"}), -32001),
        ("tasks/resubscribe", json!({"id": 7}), -32602),
        ("message/stream", json!({"message": 7}), -32602),
    ] {
        let events = events(&router, call(method, &params)).await;
        assert_eq!(events.len(), 1, "{method} {params}: {events:?}");
        assert_eq!(events[0].1["code"], code, "{method} {params}: {events:?}");
    }
    // In version 1, this error is a usual response.
    let (_, answered) = answer(&router, rpc("SubscribeToTask", &json!({"id": ended}))).await;
    assert_eq!(answered["error"]["code"], -32004);
}

#[tokio::test]
async fn errors_have_the_codes_of_this_version() {
    let router = router().await;
    let ended = result(&router, "message/send", &sent("echo")).await["id"].clone();
    let mut other = sent("other");
    other["message"]["taskId"] = "nothing".into();
    let webhook = json!({"taskId": ended, "pushNotificationConfig": {"url": "https://a.example"}});
    for (method, params, code) in [
        ("tasks/get", json!({"id": "nothing"}), -32001),
        ("message/send", other, -32001),
        ("tasks/cancel", json!({"id": ended}), -32002),
        ("tasks/pushNotificationConfig/set", webhook, -32003),
        ("agent/getAuthenticatedExtendedCard", json!(null), -32007),
        ("tasks/nothing", json!({}), -32601),
        // A method of version 1 needs its version.
        ("SendMessage", json!({}), -32009),
    ] {
        let error = error(&router, method, &params).await;
        assert_eq!(error["code"], code, "{method}: {error}");
    }
    let hint = error(&router, "SendMessage", &json!({})).await;
    let hint = hint["message"].as_str().unwrap().to_owned();
    assert!(hint.contains("A2A-Version: 1.0"), "{hint}");
    let mut untyped = call("tasks/get", &json!({"id": ended}));
    untyped.headers_mut().remove("content-type");
    assert_eq!(answer(&router, untyped).await.1["error"]["code"], -32005);
}

/// The conformance tests of this version send requests without an id, and expect the error of their content.
#[tokio::test]
async fn request_without_an_id_is_answered() {
    let router = router().await;
    for (method, code) in [("message/ssend", -32601), ("message/send", -32602)] {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": {"": "x"}});
        let mut request = post("/", body.to_string());
        request.headers_mut().remove("a2a-version");
        let (_, answered) = answer(&router, request).await;
        assert_eq!(
            (&answered["id"], &answered["error"]["code"]),
            (&json!(null), &json!(code))
        );
    }
}

#[tokio::test]
async fn garbage_is_refused_as_invalid_parameters() {
    let router = router().await;
    let part = |part: Value| {
        let mut params = sent("garbage");
        params["message"]["parts"] = json!([part]);
        params
    };
    // Bodies of JSON may be nested 127 times; the envelope and the parameters have some of these levels.
    let nested = (0..110).fold(json!(1), |inner, _| json!({"kind": inner}));
    for params in [
        json!(null),
        json!([]),
        json!("x"),
        json!({"message": null}),
        json!({"message": {}}),
        part(json!(null)),
        part(json!({"kind": "image"})),
        part(json!({"kind": 7, "text": "x"})),
        part(json!({"kind": "file", "file": "x"})),
        part(json!({"kind": "data", "data": "x"})),
        part(nested.clone()),
        json!({"message": nested}),
        json!({"message": {"messageId": "", "role": "user", "parts": [{"kind": "text", "text": ""}]}}),
        json!({"message": {"messageId": "m", "role": "user", "parts": []}}),
    ] {
        let error = error(&router, "message/send", &params).await;
        assert_eq!(error["code"], -32602, "{params}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    // Data that is nested deeply, but not too deeply, is data.
    let deep = (0..60).fold(json!(1), |inner, _| json!({"a": inner}));
    let task = result(
        &router,
        "message/send",
        &part(json!({"kind": "data", "data": deep})),
    )
    .await;
    let stored = &task["history"][0]["parts"][0]["data"];
    assert_eq!(stored.to_string().matches("\"a\"").count(), 60);
    let body = format!(
        r#"{{"jsonrpc": "2.0", "id": "x", "method": "message/send", "params": {}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let mut request = post("/", body);
    request.headers_mut().remove("a2a-version");
    let (_, answered) = answer(&router, request).await;
    assert_eq!(answered["error"]["code"], -32700, "{answered}");
}

#[tokio::test]
async fn tasks_of_other_users_are_not_found() {
    let router = router().await;
    let task = result(&router, "message/send", &sent("echo")).await["id"].clone();
    for method in ["tasks/get", "tasks/cancel"] {
        let mut request = call(method, &json!({"id": task}));
        request
            .headers_mut()
            .insert("authorization", "bob".parse().unwrap());
        let (_, answered) = answer(&router, request).await;
        assert_eq!(answered["error"]["code"], -32001, "{method}");
    }
    let mut request = call("tasks/get", &json!({"id": task}));
    request.headers_mut().remove("authorization");
    assert_eq!(answer(&router, request).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn card_has_the_fields_of_both_versions() {
    let router = router().await;
    let card = |path: &str| {
        let mut request = get(path);
        request.headers_mut().remove("a2a-version");
        request
    };
    let (_, merged) = answer(&router, card("/.well-known/agent-card.json")).await;
    let url = "http://127.0.0.1:1";
    assert_eq!(
        (
            &merged["url"],
            &merged["preferredTransport"],
            &merged["protocolVersion"]
        ),
        (&json!(url), &json!("JSONRPC"), &json!("0.3.0"))
    );
    assert_eq!(
        merged["additionalInterfaces"],
        json!([{"url": url, "transport": "JSONRPC"}])
    );
    let interfaces = merged["supportedInterfaces"].as_array().unwrap();
    let versions: Vec<_> = interfaces.iter().map(|it| &it["protocolVersion"]).collect();
    assert_eq!(versions, ["1.0", "1.0", "0.3"]);
    // Strict clients of version 1 name their version, and get no other fields.
    let (_, mut v1) = answer(&router, get("/.well-known/agent-card.json")).await;
    assert!(v1.get("url").is_none(), "{v1}");
    let fields = merged.as_object().unwrap().clone();
    let old = [
        "url",
        "preferredTransport",
        "protocolVersion",
        "additionalInterfaces",
    ];
    for name in old {
        v1[name] = fields[name].clone();
    }
    assert_eq!(v1, merged);
    assert_eq!(
        answer(&router, card("/.well-known/agent.json")).await,
        (StatusCode::OK, merged)
    );
}

/// The specification permits the version as a parameter of the request.
#[tokio::test]
async fn version_can_be_in_the_query() {
    let router = router().await;
    let without = |mut request: Request<Body>| {
        request.headers_mut().remove("a2a-version");
        request
    };
    let (status, body) = answer(&router, without(get("/tasks?A2A-Version=1.0"))).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (status, _) = answer(&router, without(get("/tasks"))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).to_string();
    let (_, listed) = answer(&router, without(post("/?A2A-Version=1.0", body))).await;
    assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
}
