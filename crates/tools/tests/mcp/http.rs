//! Calls, stops and lists over streamable HTTP, with an MCP server on a free local port.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{Scope, StopRequest, WorkSpec};
use allstop_tools::FormAnswer;
use allstop_tools::mcp::McpState;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::stateless::{Person, link};
use crate::support::{Place, cancellations, only_item, wait_until, within};

/// Requests that the server received.
pub(crate) type Got = Arc<Mutex<Vec<String>>>;

/// State of the server, which runs in one scope.
#[derive(Clone)]
struct Theirs {
    got: Got,
    /// True if the server has the extension for confirmed cancellations.
    confirms: bool,
    /// Ids of the cancelled requests.
    cancelled: watch::Sender<Vec<Value>>,
    /// Set to true when the server gets one more tool. The server then notifies its clients.
    grown: watch::Sender<bool>,
}

pub(crate) async fn serve(scope: &Scope) -> (String, Got) {
    serve_with(scope, false).await
}

/// Starts the server, with or without the extension for confirmed cancellations.
pub(crate) async fn serve_with(scope: &Scope, confirms: bool) -> (String, Got) {
    let got = Got::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let theirs = Theirs {
        got: Arc::clone(&got),
        confirms,
        cancelled: watch::Sender::default(),
        grown: watch::Sender::new(false),
    };
    let app = Router::new()
        .route("/mcp", post(take).get(tell))
        .with_state(theirs);
    let work = WorkSpec::new(ItemKind::Future, "server");
    let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
    drop(serving.unwrap());
    (format!("http://{address}/mcp"), got)
}

/// Stream of the messages that the server sends by itself.
async fn tell(State(theirs): State<Theirs>) -> impl IntoResponse {
    let mut grown = theirs.grown.subscribe();
    let says = async move {
        drop(grown.wait_for(|grown| *grown).await);
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        Ok::<_, std::io::Error>(format!("event: message\ndata: {changed}\n\n"))
    };
    // The stream stays open after the notification.
    let says = futures::stream::once(says).chain(futures::stream::pending());
    (
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(says),
    )
}

async fn take(State(theirs): State<Theirs>, headers: HeaderMap, body: String) -> Response {
    theirs.got.lock().unwrap().push(body.clone());
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
        "initialize" => {
            let result = answer(json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}, "extensions": extensions(theirs.confirms)},
                "serverInfo": {"name": "test", "version": "1"},
            }));
            ([("mcp-session-id", "s1")], result).into_response()
        }
        "tools/list" => {
            let mut names = vec![
                "echo",
                "wait",
                "stream",
                "grow",
                "deep",
                "cut",
                "denied",
                "forbidden",
                "page",
            ];
            names.extend(theirs.grown.borrow().then_some("new"));
            let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools: Vec<_> = names.into_iter().map(tool).collect();
            answer(json!({"tools": tools}))
        }
        "tools/call" => match message["params"]["name"].as_str().unwrap_or_default() {
            "wait" if message["params"]["arguments"]["confirm_ms"].is_u64() => {
                confirm(&message, theirs.cancelled.subscribe()).await
            }
            "wait" => {
                let ms = message["params"]["arguments"]["ms"]
                    .as_u64()
                    .unwrap_or(60_000);
                tokio::time::sleep(Duration::from_millis(ms)).await;
                text("waited")
            }
            "grow" => {
                theirs.grown.send_replace(true);
                text("grown")
            }
            "deep" => deep(&message["id"], &message["params"]["arguments"]["as"]),
            "denied" => StatusCode::UNAUTHORIZED.into_response(),
            "forbidden" => (StatusCode::FORBIDDEN, "not this tool").into_response(),
            "page" if log(&theirs.got).matches("\"page\"").count() % 2 == 1 => {
                let page = json!({
                    "mode": "url", "message": "Your name?", "url": "https://page.example/?a=1",
                    "elicitationId": "1",
                });
                let error = json!({"code": -32042, "message": "name needed", "data": {"elicitations": [page]}});
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
                (
                    [(header::CONTENT_TYPE, "application/json")],
                    answer.to_string(),
                )
                    .into_response()
            }
            "page" => text("visited"),
            "cut" => {
                let comment = ": nothing follows\n\n";
                ([(header::CONTENT_TYPE, "text/event-stream")], comment).into_response()
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
        "notifications/cancelled" => {
            let id = message["params"]["requestId"].clone();
            theirs.cancelled.send_modify(|cancelled| cancelled.push(id));
            StatusCode::ACCEPTED.into_response()
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

fn extensions(confirms: bool) -> Value {
    if confirms {
        json!({"io.allstop/confirmed-cancel": {}})
    } else {
        json!({})
    }
}

/// Answers a call with an error, some time after its cancellation.
async fn confirm(call: &Value, mut cancelled: watch::Receiver<Vec<Value>>) -> Response {
    let arguments = &call["params"]["arguments"];
    let after = Duration::from_millis(arguments["confirm_ms"].as_u64().unwrap_or_default());
    let error = json!({"code": -32800, "message": "cancelled"});
    let answer = json!({"jsonrpc": "2.0", "id": call["id"], "error": error});
    let id = call["id"].clone();
    let confirmed = async move {
        drop(cancelled.wait_for(|ids| ids.contains(&id)).await);
        tokio::time::sleep(after).await;
    };
    if arguments["as"] == "events" {
        let events = async move {
            confirmed.await;
            Ok::<_, std::io::Error>(format!("event: message\ndata: {answer}\n\n"))
        };
        let events = Body::from_stream(futures::stream::once(events));
        return ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response();
    }
    confirmed.await;
    (
        [(header::CONTENT_TYPE, "application/json")],
        answer.to_string(),
    )
        .into_response()
}

/// A message with nested reserved keys, that is, keys which the JSON library reserves for itself. The string value of
/// each reserved key contains the next one.
fn deep(id: &Value, kind: &Value) -> Response {
    let mut nested = "[".repeat(100);
    for _ in 0..40 {
        let escaped = nested.replace('\\', "\\u005c").replace('"', "\\u0022");
        let arrays = "[".repeat(100);
        nested = format!(r#"{arrays}{{"$serde_json::private::RawValue":"{escaped}"#);
        nested += "\"}";
        nested += &"]".repeat(100);
    }
    let answer = |field| format!(r#"{{"jsonrpc":"2.0","id":{id},{field}}}"#);
    let result = answer(format!(
        r#""result":{{"structuredContent":{{"a":{nested}}}}}"#
    ));
    let error = answer(format!(
        r#""error":{{"code":1,"message":"","data":{nested}}}"#
    ));
    let json = [(header::CONTENT_TYPE, "application/json")];
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    let nested = answer(format!(
        r#""result":{{"structuredContent":{{"a":{deep}}}}}"#
    ));
    match kind.as_str().unwrap_or_default() {
        "events" => {
            let events = format!("event: message\ndata: {result}\n\n");
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        "nested" => (json, nested).into_response(),
        "nested events" => {
            let events = format!("event: message\ndata: {nested}\n\n");
            ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
        }
        "failure" => (StatusCode::BAD_REQUEST, json, error).into_response(),
        _ => (json, result).into_response(),
    }
}

pub(crate) fn log(got: &Got) -> String {
    got.lock().unwrap().join("\n")
}

pub(crate) fn calls(got: &Got) -> usize {
    log(got).matches("\"tools/call\"").count()
}

#[tokio::test]
async fn calls_go_over_http() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
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

/// A reserved key could make the JSON library overflow the stack of this process.
#[tokio::test]
async fn reserved_keys_over_http_end_the_connection() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, _got) = serve(&theirs).await;
    for kind in ["failure", "events", "json"] {
        let place = Place::over_http(&url).await;
        let answer = within(place.call("t__deep", json!({ "as": kind }))).await;
        let error = answer.expect_err("the answer cannot be read");
        assert!(error.contains("a key that is reserved"), "{kind}: {error}");
    }
}

#[tokio::test]
async fn deep_answer_over_http_ends_its_call() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    for kind in ["nested", "nested events"] {
        let answer = within(place.call("t__deep", json!({ "as": kind }))).await;
        let error = answer.expect_err("the answer cannot be read");
        assert!(
            error.ends_with("it is nested more than 127 levels deep"),
            "{kind}: {error}"
        );
    }
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

const DENIED: &str = "it refused access with HTTP 401 Unauthorized; set `bearer_token_env` or `headers` to valid \
                      credentials in the section `[mcp.servers.t]`";

#[tokio::test]
async fn refused_access_names_the_remedy_and_is_not_retried() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http_with_key(&url, "old").await;
    let state = place.state().to_string();
    assert_eq!(
        state,
        format!("not available: {DENIED}; next attempt at the next call")
    );
    assert_eq!(got.lock().unwrap().len(), 1);
}

/// The credentials can expire while the server is connected.
#[tokio::test]
async fn refused_call_names_the_remedy() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let error = place.call("t__denied", json!({})).await.unwrap_err();
    assert!(error.contains(DENIED), "{error}");
    wait_until("it is known", || place.state().to_string().contains(DENIED)).await;
    let McpState::Degraded { next_try: None, .. } = place.state() else {
        panic!("{:?}", place.state());
    };
    // The next call makes an attempt, because the server may accept the credentials again.
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

/// The call is repeated after the visit. Without a visit, the error names the page.
#[tokio::test]
async fn call_that_needs_a_page_is_repeated_after_the_visit() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let person = Person::with(Some(FormAnswer::Accept(serde_json::Map::new())));
    let call = place.start_with("t__page", json!({}), link(&person));
    assert_eq!(call.answer().await.unwrap(), "visited");
    assert_eq!(calls(&got), 2);
    let person = Person::with(Some(FormAnswer::Decline));
    let call = place.start_with("t__page", json!({}), link(&person));
    let error = call.answer().await.unwrap_err();
    assert!(error.contains("name needed"), "{error}");
    assert!(
        error.contains("open https://page.example/?a=1; then repeat"),
        "{error}"
    );
    assert_eq!(calls(&got), 3);
}

/// A proxy may close a response that takes too long. The server may still run the call in that case.
#[tokio::test]
async fn outcome_of_a_cut_response_is_unknown() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let error = place.call("t__cut", json!({})).await.unwrap_err();
    assert!(error.contains("its outcome is unknown"), "{error}");
    wait_until("it was told", || !cancellations(&log(&got)).is_empty()).await;
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

#[tokio::test]
async fn stopped_call_is_cancelled_once_and_is_unreachable() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "unreachable", "{item}");
    wait_until("it was told", || !cancellations(&log(&got)).is_empty()).await;
    // The next call gets its own answer, even while the server still runs the first one.
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
    let [(_, reason)] = cancellations(&log(&got)).try_into().unwrap();
    assert_eq!(reason, "user (test)");
}

#[tokio::test]
async fn late_answer_over_http_is_dropped() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({"ms": 600}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    let next = place.call("t__wait", json!({"ms": 800})).await;
    assert_eq!(next.unwrap(), "waited");
}

#[tokio::test]
async fn lost_server_is_degraded_and_its_tools_report_it() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::User));
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
    assert!(error.contains("next attempt"), "{error}");
    assert_eq!(place.tools().len(), 9);
}

#[tokio::test]
async fn list_change_is_received_over_http() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    assert!(!place.has_tool("t__new"));
    assert_eq!(place.call("t__grow", json!({})).await.unwrap(), "grown");
    wait_until("it is there", || place.has_tool("t__new")).await;
    assert_eq!(log(&got).matches("\"tools/list\"").count(), 2);
}

#[tokio::test]
async fn stop_of_everything_cancels_calls_of_a_remote_server() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let running: Vec<_> = (0..8).map(|_| place.start("t__wait", json!({}))).collect();
    wait_until("the server has the calls", || calls(&got) == 8).await;
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = within(place.root.stop(order).receipt()).await;
    assert_eq!(cancellations(&log(&got)).len(), 8);
    assert!(
        !receipt.quiet(),
        "the state of the calls at the server is unknown"
    );
    drop(running);
}

#[tokio::test]
async fn close_cancels_calls_of_a_remote_server() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    within(place.servers.close()).await;
    let error = call.answer().await.unwrap_err();
    assert!(error.contains("it is being stopped"), "{error}");
    assert_eq!(cancellations(&log(&got)).len(), 1);
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let theirs = Scope::root("theirs", allstop_scope::RootOptions::single_runtime());
    let (url, _got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    assert!(!format!("{:?}", place.servers).contains("secret"));
}
