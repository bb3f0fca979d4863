//! A service with a scripted agent, and requests to its router.

use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentDescription, Authenticator, Principal, Unauthenticated,
    agent_card, grpc_router, http_router,
};
use allstop_core::ContextId;
use allstop_log::{Log, MemoryLog};
use allstop_scope::{RootOptions, Scope};
use allstop_task::model::{Artifact, MessageSender};
use allstop_task::{
    ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskManager, TaskMessage,
    TaskOptions, TaskParts, TaskState,
};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Agent that follows the command in the text of the message: `echo`, `wait` (until stopped), `ask`, `reply` (`late reply`:
/// after 0.6 s), `fail`, `stream` (20 pieces of text in a second, then the artifact), `tease` (pieces without an end).
pub(crate) struct ObedientAgent;

impl Executor for ObedientAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            let text = format!("{:?}", cx.message.parts);
            let write = |event| cx.events.write(event);
            if text.contains("reply") {
                if text.contains("late") {
                    tokio::time::sleep(Duration::from_millis(600)).await;
                }
                let reply = TaskMessage::text("r", MessageSender::Agent, "just a message");
                let _ended = write(TaskEvent::Reply(Arc::new(reply))).await;
            } else if text.contains("fail") {
                return Err(ExecutorError::new("as told"));
            } else if text.contains("stream") || text.contains("tease") {
                let _ended = write(TaskEvent::state(TaskState::Working)).await;
                cx.live_text.restart("a", Some("answer".into()));
                for number in 0..20 {
                    cx.live_text.push(&format!("{number} "));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                if text.contains("tease") {
                    cx.scope.stopped_at("waiting").await;
                } else {
                    let _ended = write(TaskEvent::artifact(Artifact::text("a", "final"))).await;
                    let _ended = write(TaskEvent::state(TaskState::Completed)).await;
                }
            } else if text.contains("ask") {
                let _ended = write(TaskEvent::state(TaskState::InputRequired)).await;
            } else {
                let _ended = write(TaskEvent::state(TaskState::Working)).await;
                let _ended = write(TaskEvent::artifact(Artifact::text("a", "result"))).await;
                if text.contains("wait") {
                    cx.scope.stopped_at("waiting").await;
                } else {
                    let _ended = write(TaskEvent::state(TaskState::Completed)).await;
                }
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }

    fn check_context(&self, context: &ContextId) -> Result<(), ExecutorError> {
        if context.as_str().contains(' ') {
            return Err(ExecutorError::new("use an id without blanks"));
        }
        Ok(())
    }
}

/// Authenticator that uses the value of the header `authorization` as the principal.
pub(crate) struct NamedUsers;

impl Authenticator for NamedUsers {
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Unauthenticated> {
        let user = headers.get("authorization").ok_or(Unauthenticated)?;
        let user = user.to_str().map_err(|_| Unauthenticated)?;
        Principal::new(user).map_err(|_| Unauthenticated)
    }
}

pub(crate) async fn router() -> Router {
    router_with(named_users()).await
}

/// Returns a task manager with the scripted agent.
pub(crate) async fn manager() -> TaskManager {
    manager_of(ObedientAgent).await
}

async fn manager_of(executor: impl Executor + 'static) -> TaskManager {
    manager_over(Arc::new(MemoryLog::new()), executor).await
}

async fn manager_over(log: Arc<dyn Log>, executor: impl Executor + 'static) -> TaskManager {
    manager_with(log, executor, TaskOptions::default()).await
}

pub(crate) async fn manager_with(
    log: Arc<dyn Log>,
    executor: impl Executor + 'static,
    options: TaskOptions,
) -> TaskManager {
    let root = Scope::root("test", RootOptions::single_runtime());
    let manager = TaskManager::open(log, root, Arc::new(TaskParts::of(executor)), options);
    manager.await.expect("it opens")
}

/// Access control that admits every named user.
pub(crate) fn named_users() -> AccessControl {
    AccessControl::new(Arc::new(NamedUsers))
}

/// A router with all bindings and this access control.
pub(crate) async fn router_with(access: AccessControl) -> Router {
    router_over(manager().await, access)
}

/// A router with all bindings, for tasks of this executor.
pub(crate) async fn router_of(executor: impl Executor + 'static) -> Router {
    router_over(manager_of(executor).await, named_users())
}

/// A router with all bindings, for the tasks in this log.
pub(crate) async fn router_over_log(log: Arc<dyn Log>) -> Router {
    router_over(manager_over(log, ObedientAgent).await, named_users())
}

pub(crate) fn router_over(manager: TaskManager, access: AccessControl) -> Router {
    let service = A2aService::new(manager);
    let card = agent_card(&AgentDescription {
        name: "obedient".into(),
        description: "does what it is told".into(),
        version: "1".into(),
        http_url: "http://127.0.0.1:1".into(),
        grpc_url: None,
    });
    let service = Arc::new(service);
    http_router(&service, card, access.clone()).merge(grpc_router(&service, access))
}

/// A router with only the gRPC binding.
pub(crate) async fn grpc_alone() -> Router {
    let service = Arc::new(A2aService::new(manager().await));
    grpc_router(&service, named_users())
}

/// A request of `alice` for version 1.
pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header("authorization", "alice")
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(body.into())
        .expect("a request")
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path)
        .header("authorization", "alice")
        .header("a2a-version", "1.0")
        .body(Body::empty())
        .expect("a request")
}

pub(crate) fn message(id: &str, text: &str) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

pub(crate) fn rpc(method: &str, params: &Value) -> Request<Body> {
    let body = json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": params});
    post("/", body.to_string())
}

/// A gRPC request of `alice` with this message.
pub(crate) fn grpc_request(method: &str, message: &[u8]) -> Request<Body> {
    let len = u32::try_from(message.len()).expect("it is small");
    let mut body = vec![0];
    body.extend(len.to_be_bytes());
    body.extend(message);
    Request::post(format!("/lf.a2a.v1.A2AService/{method}"))
        .version(axum::http::Version::HTTP_2)
        .header("authorization", "alice")
        .header("a2a-version", "1.0")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from(body))
        .expect("a request")
}

/// Returns the status and JSON body of the response.
pub(crate) async fn answer(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let sent = router.clone().oneshot(request);
    let response = tokio::time::timeout(Duration::from_secs(20), sent).await;
    let response = response.expect("an answer").expect("infallible");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body");
    let bytes = body.to_bytes();
    let json = serde_json::from_slice(&bytes);
    (
        status,
        json.unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())),
    )
}

/// The result of a JSON-RPC call.
pub(crate) async fn result(router: &Router, method: &str, params: &Value) -> Value {
    let (_, mut body) = answer(router, rpc(method, params)).await;
    assert!(body.get("error").is_none(), "{body}");
    body["result"].take()
}

/// The error code of a JSON-RPC call.
pub(crate) async fn error_code(router: &Router, method: &str, params: &Value) -> i64 {
    let (_, body) = answer(router, rpc(method, params)).await;
    body["error"]["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("no error: {body}"))
}

/// Server-sent event: its id, and a short name for its payload.
pub(crate) type StreamedEvent = (u64, String);

/// Reads events of a stream: at most `limit`, or all until its end.
pub(crate) async fn events(
    router: &Router,
    request: Request<Body>,
    limit: usize,
) -> Vec<StreamedEvent> {
    let response = router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), StatusCode::OK);
    events_of(response.into_body(), limit).await
}

/// Like [`events`], but for the body of a response that has already begun.
pub(crate) async fn events_of(mut body: Body, limit: usize) -> Vec<StreamedEvent> {
    let (mut text, mut events) = (String::new(), Vec::new());
    while events.len() < limit {
        let frame = tokio::time::timeout(Duration::from_secs(20), body.frame()).await;
        let Some(frame) = frame.expect("an event") else {
            break;
        };
        let data = frame.expect("no error").into_data().expect("data");
        text.push_str(&String::from_utf8_lossy(&data));
        while let Some((event, rest)) = text.split_once("\n\n") {
            if let Some(event) = parse(event) {
                events.push(event);
            }
            text = rest.to_owned();
        }
    }
    events.truncate(limit);
    events
}

fn parse(event: &str) -> Option<StreamedEvent> {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    let id = field("id: ")?.trim().parse().expect("a number");
    let data: Value = serde_json::from_str(field("data: ")?).expect("JSON");
    let payload = data.get("result").unwrap_or(&data);
    let word = if let Some(status) = payload.get("statusUpdate") {
        status["status"]["state"].to_string()
    } else {
        let object = payload.as_object().expect("an object");
        object.keys().next().expect("a field").clone()
    };
    Some((
        id,
        word.trim_matches('"')
            .replace("TASK_STATE_", "")
            .to_lowercase(),
    ))
}
