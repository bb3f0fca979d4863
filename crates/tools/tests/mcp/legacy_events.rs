//! Servers with the HTTP transport of revision 2024-11-05: one stream of events, and an endpoint for messages.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use allstop_core::receipt::ItemKind;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::{Place, cancellations, only_item, wait_until, within};

/// State of the server.
#[derive(Clone)]
struct Theirs {
    /// Endpoint in the first event.
    endpoint: Arc<str>,
    /// Messages that the server received.
    got: Arc<Mutex<Vec<String>>>,
    /// The open stream.
    stream: Arc<Mutex<Option<mpsc::UnboundedSender<String>>>>,
}

impl Theirs {
    fn log(&self) -> String {
        self.got.lock().unwrap().join("\n")
    }
}

async fn serve(scope: &Scope, endpoint: &str) -> (String, Theirs) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    let theirs = Theirs {
        endpoint: endpoint.into(),
        got: Arc::default(),
        stream: Arc::default(),
    };
    // A POST to the address of the stream gets status 405.
    let app = Router::new()
        .route("/sse", get(stream))
        .route("/messages", post(take))
        .with_state(theirs.clone());
    let work = WorkSpec::new(ItemKind::Future, "server");
    let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
    drop(serving.unwrap());
    (url, theirs)
}

async fn stream(State(theirs): State<Theirs>, headers: HeaderMap) -> impl IntoResponse {
    assert_eq!(headers["x-key"], "secret");
    let (tx, rx) = mpsc::unbounded_channel();
    *theirs.stream.lock().unwrap() = Some(tx);
    let endpoint = format!("event: endpoint\ndata: {}\n\n", theirs.endpoint);
    let messages = futures::stream::unfold(rx, |mut rx| async move {
        let message: String = rx.recv().await?;
        Some((format!("event: message\ndata: {message}\n\n"), rx))
    });
    let events = futures::stream::once(async move { endpoint }).chain(messages);
    (
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(events.map(Ok::<_, Infallible>)),
    )
}

async fn take(State(theirs): State<Theirs>, headers: HeaderMap, body: String) -> StatusCode {
    assert_eq!(headers["x-key"], "secret");
    theirs.got.lock().unwrap().push(body.clone());
    let message: Value = serde_json::from_str(&body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }),
        "tools/list" => {
            let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools = ["echo", "wait", "leave"].map(tool);
            json!({ "tools": tools })
        }
        "tools/call" if message["params"]["name"] == "echo" => {
            json!({"content": [{"type": "text", "text": "hi"}]})
        }
        "tools/call" if message["params"]["name"] == "leave" => {
            // The stream ends before the answer.
            *theirs.stream.lock().unwrap() = None;
            return StatusCode::ACCEPTED;
        }
        _ => return StatusCode::ACCEPTED,
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let stream = theirs.stream.lock().unwrap();
    let sent = stream
        .as_ref()
        .map(|stream| stream.send(answer.to_string()));
    assert!(sent.is_some_and(|sent| sent.is_ok()), "no stream is open");
    StatusCode::ACCEPTED
}

fn their_scope() -> Scope {
    Scope::root("theirs", RootOptions::single_runtime())
}

#[tokio::test]
async fn calls_go_to_the_endpoint_and_answers_come_in_the_stream() {
    let scope = their_scope();
    let (url, _theirs) = serve(&scope, "/messages?session=1").await;
    let place = Place::over_http(&url).await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "hi");
    within(place.servers.close()).await;
    assert_eq!(place.state().to_string(), "stopped");
}

#[tokio::test]
async fn stopped_call_is_cancelled_and_is_unreachable() {
    let scope = their_scope();
    let (url, theirs) = serve(&scope, "/messages").await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({}));
    let has_call = || theirs.log().contains("\"tools/call\"");
    wait_until("the server has the call", has_call).await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    let is_told = || !cancellations(&theirs.log()).is_empty();
    wait_until("the server has the cancellation", is_told).await;
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "hi");
}

#[tokio::test]
async fn outcome_of_a_call_is_unknown_after_the_end_of_the_stream() {
    let scope = their_scope();
    let (url, _theirs) = serve(&scope, "/messages").await;
    let place = Place::over_http(&url).await;
    let error = within(place.call("t__leave", json!({}))).await.unwrap_err();
    assert!(
        error.contains("closed its stream of events") && error.contains("unknown"),
        "{error}"
    );
    // The next connection has a new stream.
    wait_until("it is there again", || place.state().to_string() == "ready").await;
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "hi");
}

#[tokio::test]
async fn endpoint_of_another_host_is_refused() {
    let scope = their_scope();
    let (url, theirs) = serve(&scope, "http://127.0.0.1:9/messages").await;
    let place = Place::over_http(&url).await;
    let state = place.state().to_string();
    assert!(state.contains("belongs to another host"), "{state}");
    assert!(theirs.log().is_empty());
}
