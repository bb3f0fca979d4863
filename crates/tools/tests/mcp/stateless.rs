//! Servers since revision 2026-07-28, which have no handshake, and servers that do not know its first request.

use std::sync::{Arc, Mutex};

use allstop_core::CallId;
use allstop_core::receipt::ItemKind;
use allstop_scope::{RootOptions, Scope, WorkSpec};
use allstop_tools::{
    CallLink, CallObserver, CallProgress, FormAnswer, PermissionAnswer, PermissionQuestion,
    Prompter, ServerQuestion,
};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::{Place, only_item, wait_until, within};

/// Requests that the server received, each with its headers.
#[derive(Clone, Default)]
struct Theirs {
    got: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    /// Number of requests for the status of the task.
    polls: Arc<Mutex<usize>>,
    /// Number of closed responses of `wait`.
    closed: Arc<Mutex<usize>>,
}

impl Theirs {
    fn count(&self, method: &str) -> usize {
        let got = self.got.lock().unwrap();
        got.iter()
            .filter(|(_, body)| body["method"] == method)
            .count()
    }

    fn calls(&self) -> Vec<(HeaderMap, Value)> {
        let got = self.got.lock().unwrap();
        let calls = got
            .iter()
            .filter(|(_, body)| body["method"] == "tools/call");
        calls.cloned().collect()
    }
}

/// A task with this status. The server `obey` ends a cancelled task.
fn task(id: &str, status: &str) -> Value {
    json!({
        "resultType": "task", "taskId": id, "status": status, "ttlMs": null, "pollIntervalMs": 100,
        "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z",
    })
}

struct Closes(Theirs);

impl Drop for Closes {
    fn drop(&mut self) {
        *self.0.closed.lock().unwrap() += 1;
    }
}

async fn serve(scope: &Scope) -> (String, Theirs) {
    let theirs = Theirs::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/mcp", post(take))
        .with_state(theirs.clone());
    let work = WorkSpec::new(ItemKind::Future, "server");
    let serving = scope.spawn(work, |_| async move { axum::serve(listener, app).await });
    drop(serving.unwrap());
    (format!("http://{address}/mcp"), theirs)
}

async fn take(State(theirs): State<Theirs>, headers: HeaderMap, body: String) -> Response {
    let message: Value = serde_json::from_str(&body).unwrap();
    theirs.got.lock().unwrap().push((headers, message.clone()));
    let answer = |mut result: Value| {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        (
            [(header::CONTENT_TYPE, "application/json")],
            answer.to_string(),
        )
            .into_response()
    };
    let text = |text: &str| {
        answer(json!({"resultType": "complete", "content": [{"type": "text", "text": text}]}))
    };
    let params = &message["params"];
    match message["method"].as_str().unwrap_or_default() {
        "server/discover" => answer(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"},
        })),
        "tools/list" => {
            let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools: Vec<_> = ["echo", "wait", "ask", "task", "obey"]
                .into_iter()
                .map(tool)
                .collect();
            answer(json!({"resultType": "complete", "tools": tools}))
        }
        "tools/call" => match params["name"].as_str().unwrap_or_default() {
            "wait" => {
                let closes = Closes(theirs);
                let open = futures::stream::once(async { Ok::<_, std::io::Error>(": open\n\n") });
                let forever = futures::stream::pending().map(move |()| {
                    let _until_the_end = &closes;
                    Ok("")
                });
                let body = Body::from_stream(open.chain(forever));
                ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
            }
            "ask" if params["inputResponses"].is_null() => {
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let question = json!({"message": "Your name?", "requestedSchema": schema});
                answer(json!({
                    "resultType": "input_required", "requestState": "s1",
                    "inputRequests": {"q": {"method": "elicitation/create", "params": question}},
                }))
            }
            id @ ("task" | "obey") => answer(task(id, "working")),
            "ask" => text(&params["inputResponses"]["q"].to_string()),
            _ => text("echo"),
        },
        "tasks/get" => {
            let mut polls = theirs.polls.lock().unwrap();
            *polls += 1;
            let id = params["taskId"].as_str().unwrap();
            let is_cancelled = theirs.count("tasks/cancel") > 0;
            let mut task = match (id, is_cancelled) {
                ("obey", true) => task(id, "cancelled"),
                ("task", _) if *polls == 3 => task(id, "completed"),
                _ => task(id, "working"),
            };
            task["resultType"] = "complete".into();
            task["result"] = json!({"content": [{"type": "text", "text": "done"}]});
            answer(task)
        }
        "tasks/cancel" => answer(json!({"resultType": "complete"})),
        _ => axum::http::StatusCode::NOT_FOUND.into_response(),
    }
}

/// A person with this answer, or without one.
#[derive(Debug)]
pub(crate) struct Person {
    answer: Option<FormAnswer>,
    asked: Notify,
}

impl Person {
    pub(crate) fn with(answer: Option<FormAnswer>) -> Arc<Self> {
        Arc::new(Self {
            answer,
            asked: Notify::new(),
        })
    }
}

impl Prompter for Person {
    fn ask(&self, _question: PermissionQuestion) -> BoxFuture<'_, PermissionAnswer> {
        Box::pin(std::future::ready(PermissionAnswer::Unanswered))
    }

    fn answer_server(&self, question: ServerQuestion) -> BoxFuture<'_, FormAnswer> {
        assert_eq!(&*question.message, "Your name?");
        assert_eq!(&*question.server, "t");
        self.asked.notify_one();
        match self.answer.clone() {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The link of a call whose questions this person answers.
struct Linked(Arc<Person>);

impl CallObserver for Linked {
    fn output(&self, _call: &CallId, _output: &[u8]) {}

    fn progress(&self, _call: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}

    fn prompter(&self) -> Option<Arc<dyn Prompter>> {
        Some(Arc::clone(&self.0) as _)
    }
}

pub(crate) fn link(person: &Arc<Person>) -> CallLink {
    CallLink::new(CallId::new("call_1"), Arc::new(Linked(Arc::clone(person))))
}

#[tokio::test]
async fn requests_without_a_handshake_carry_their_revision() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "echo");
    let got = theirs.got.lock().unwrap().clone();
    let methods: Vec<_> = got.iter().map(|(_, body)| body["method"].clone()).collect();
    assert_eq!(methods, ["server/discover", "tools/list", "tools/call"]);
    for (headers, body) in got {
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
        assert_eq!(headers["mcp-method"], body["method"].as_str().unwrap());
        let meta = &body["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert!(!headers.contains_key("mcp-session-id"));
    }
}

/// The server sees only the end of the response, and owes no answer.
#[tokio::test]
async fn stopped_call_closes_its_response_and_is_unreachable() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({}));
    wait_until("the server has the call", || theirs.calls().len() == 1).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "unreachable", "{item}");
    wait_until("the response is closed", || {
        *theirs.closed.lock().unwrap() == 1
    })
    .await;
    assert_eq!(place.call("t__echo", json!({})).await.unwrap(), "echo");
}

#[tokio::test]
async fn person_answers_a_question_and_the_call_is_repeated_with_it() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    let values = json!({"name": "Ada"}).as_object().unwrap().clone();
    for (answer, expected) in [
        (
            FormAnswer::Accept(values),
            json!({"action": "accept", "content": {"name": "Ada"}}),
        ),
        (FormAnswer::Decline, json!({"action": "decline"})),
        (FormAnswer::Unanswered, json!({"action": "decline"})),
    ] {
        let is_listed = answer == FormAnswer::Unanswered;
        let link = link(&Person::with(Some(answer)));
        let call = place.start_with("t__ask", json!({}), link.clone());
        let answered: Value = serde_json::from_str(&call.answer().await.unwrap()).unwrap();
        assert_eq!(answered, expected);
        assert_eq!(link.denials().len(), usize::from(is_listed));
        let (_, body) = theirs.calls().pop().unwrap();
        assert_eq!(body["params"]["requestState"], "s1");
    }
    let unasked = place.call("t__ask", json!({})).await.unwrap();
    assert_eq!(unasked, json!({"action": "decline"}).to_string());
}

#[tokio::test]
async fn stop_ends_an_open_question() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    let person = Person::with(None);
    let call = place.start_with("t__ask", json!({}), link(&person));
    within(person.asked.notified()).await;
    let receipt = call.stop().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(theirs.calls().len(), 1, "the call is not repeated");
}

#[tokio::test]
async fn result_of_a_task_is_the_result_of_the_call() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    assert_eq!(place.call("t__task", json!({})).await.unwrap(), "done");
    assert_eq!(theirs.count("tasks/get"), 3);
    assert_eq!(theirs.count("tasks/cancel"), 0);
}

#[tokio::test]
async fn stop_of_a_task_is_verified_by_its_status() {
    let scope = Scope::root("theirs", RootOptions::single_runtime());
    let (url, theirs) = serve(&scope).await;
    let place = Place::over_http(&url).await;
    // The server `obey` cancels its task; the other one continues its task for some time.
    for (tool, state) in [("t__obey", "stopped"), ("t__task", "unreachable")] {
        let before = theirs.count("tasks/cancel");
        *theirs.polls.lock().unwrap() = 10;
        let polls = theirs.count("tasks/get");
        let call = place.start(tool, json!({}));
        wait_until("the task is followed", || theirs.count("tasks/get") > polls).await;
        let receipt = call.stop().await;
        let item = only_item(&receipt);
        assert_eq!(item["state"], state, "{item}");
        assert_eq!(receipt.quiet(), state == "stopped");
        assert_eq!(theirs.count("tasks/cancel"), before + 1);
        theirs.got.lock().unwrap().clear();
    }
}

/// A server with a handshake asks with a separate request.
#[tokio::test]
async fn question_of_an_earlier_server_reaches_the_person() {
    let place = Place::new("").await;
    let values = json!({"name": "Ada"}).as_object().unwrap().clone();
    let person = Person::with(Some(FormAnswer::Accept(values)));
    let call = place.start_with("t__mutter", json!({"ask": true}), link(&person));
    let answered: Value = serde_json::from_str(&call.answer().await.unwrap()).unwrap();
    assert_eq!(answered["content"], json!({"name": "Ada"}));
}

/// MCP permits no objects in forms.
#[tokio::test]
async fn question_of_an_unknown_form_gets_an_error() {
    let place = Place::new("").await;
    let person = Person::with(None);
    let call = place.start_with("t__mutter", json!({"ask": "nested"}), link(&person));
    let answered: Value = serde_json::from_str(&call.answer().await.unwrap()).unwrap();
    assert_eq!(answered["code"], -32602, "{answered}");
    let text = answered["message"].as_str().unwrap();
    assert!(text.contains("elicitation/create"), "{answered}");
}

#[tokio::test]
async fn server_that_ignores_the_first_request_gets_the_handshake() {
    let place = Place::new("silent").await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(place.count("server/discover"), 1);
    assert_eq!(place.count("initialize"), 1);
}

#[tokio::test]
async fn server_that_ends_at_the_first_request_is_started_again() {
    let place = Place::new("picky").await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(place.log().matches("started ").count(), 2);
    assert_eq!(place.count("server/discover"), 1);
}
