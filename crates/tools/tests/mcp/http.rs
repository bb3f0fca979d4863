//! The same over streamable HTTP, with a server on a free port of this machine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_scope::{Scope, WorkSpec};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::support::{Place, cancellations, only_item, wait_until, within};

/// What the server got, and the header that it was sent.
type Got = Arc<Mutex<Vec<String>>>;

async fn serve(scope: &Scope) -> (String, Got) {
    let got = Got::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/mcp", post(take))
        .with_state(Arc::clone(&got));
    let work = WorkSpec::new(ItemKind::Future, "server");
    let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
    drop(serving.unwrap());
    (format!("http://{address}/mcp"), got)
}

async fn take(State(got): State<Got>, headers: HeaderMap, body: String) -> Response {
    got.lock().unwrap().push(body.clone());
    if headers.get("x-key").is_none_or(|key| key != "secret") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let message: Value = serde_json::from_str(&body).unwrap();
    let answer = |result: Value| {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        (
            [(header::CONTENT_TYPE, "application/json")],
            answer.to_string(),
        )
            .into_response()
    };
    let text = |text: &str| answer(json!({"content": [{"type": "text", "text": text}]}));
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => answer(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        })),
        "tools/list" => answer(json!({"tools": [
            {"name": "echo", "inputSchema": {"type": "object"}},
            {"name": "wait", "inputSchema": {"type": "object"}},
            {"name": "stream", "inputSchema": {"type": "object"}},
        ]})),
        "tools/call" => match message["params"]["name"].as_str().unwrap_or_default() {
            "wait" => {
                let ms = message["params"]["arguments"]["ms"]
                    .as_u64()
                    .unwrap_or(60_000);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                text("waited")
            }
            "stream" => {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"],
                    "result": {"content": [{"type": "text", "text": "streamed"}]}});
                let events = format!("event: message\ndata: {answer}\n\n");
                ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
            }
            _ => text(
                message["params"]["arguments"]["text"]
                    .as_str()
                    .unwrap_or_default(),
            ),
        },
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

fn log(got: &Got) -> String {
    got.lock().unwrap().join("\n")
}

fn calls(got: &Got) -> usize {
    log(got).matches("\"tools/call\"").count()
}

#[tokio::test]
async fn calls_go_over_http() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::current());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(
        place.call("t__echo", json!({"text": "hi"})).await.unwrap(),
        "hi"
    );
    assert_eq!(
        place.call("t__stream", json!({})).await.unwrap(),
        "streamed"
    );
    within(place.servers.close()).await;
    assert_eq!(place.state().to_string(), "stopped");
}

#[tokio::test]
async fn a_stopped_call_is_cancelled_once_and_is_unreachable() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::current());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "unreachable", "{item}");
    wait_until("it was told", || !cancellations(&log(&got)).is_empty()).await;
    // The next call has its own answer, also while the old one is still being worked on.
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
    let [(_, reason)] = cancellations(&log(&got)).try_into().unwrap();
    assert_eq!(reason, "user (test)");
}

#[tokio::test]
async fn a_late_answer_over_http_is_nobody_s() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::current());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({"ms": 600}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    let next = place.call("t__wait", json!({"ms": 800})).await;
    assert_eq!(next.unwrap(), "waited");
}

#[tokio::test]
async fn a_server_that_is_gone_is_degraded_and_its_tools_say_so() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::current());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let order = allstop_scope::StopOrder::new(
        allstop_core::Extent::Process,
        allstop_core::Cause::new(allstop_core::CauseKind::User),
    );
    let _receipt = within(theirs.stop(order.grace(Duration::ZERO)).receipt()).await;
    let error = place
        .call("t__echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    assert!(error.contains("cannot be reached"), "{error}");
    wait_until("it is known", || {
        place.state().to_string().starts_with("not available")
    })
    .await;
    let error = place
        .call("t__echo", json!({"text": "x"}))
        .await
        .unwrap_err();
    assert!(error.contains("it is tried again"), "{error}");
    assert_eq!(place.tools().len(), 3);
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::current());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    assert!(!format!("{:?}", place.servers).contains("secret"));
}
