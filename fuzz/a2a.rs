//! Router of all bindings over a manager in memory, and the answers of this router.

use std::sync::Arc;
use std::time::Duration;

use allstop_a2a::{
    A2aService, AccessControl, AgentDescription, NoAuthentication, PushNotifications, PushOptions,
    agent_card, grpc_router, http_router,
};
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
use tower::ServiceExt as _;

/// Time after which a request counts as hanging. In this target, no executor waits.
const ANSWER_MAX: Duration = Duration::from_mins(10);

/// Agent that ends immediately. The text of the message decides whether the agent writes a question, a message, an
/// error or an echo.
struct QuickAgent;

impl Executor for QuickAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        async move {
            let text = format!("{:?}", cx.message.parts);
            let events = if text.contains("reply") {
                let reply = TaskMessage::text("r", MessageSender::Agent, "just a message");
                vec![TaskEvent::Reply(Arc::new(reply))]
            } else if text.contains("fail") {
                return Err(ExecutorError::new("as told"));
            } else if text.contains("ask") {
                vec![TaskEvent::state(TaskState::InputRequired)]
            } else {
                let echo = Artifact::text("a", text);
                vec![
                    TaskEvent::artifact(echo),
                    TaskEvent::state(TaskState::Completed),
                ]
            };
            for event in events {
                if cx.events.write(event).await.is_err() {
                    break;
                }
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

/// Creates a router of all bindings. With `push`, clients can configure webhooks, but the router never sends a
/// delivery.
pub(crate) async fn router(push: Option<PushOptions>) -> Router {
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let root = Scope::root("fuzz", RootOptions::current());
    let parts = Arc::new(TaskParts::of(QuickAgent));
    let manager = TaskManager::open(
        Arc::clone(&log),
        root.clone(),
        parts,
        TaskOptions::default(),
    )
    .await;
    let manager = manager.expect("an empty store opens");
    let mut service = A2aService::new(manager.clone());
    if let Some(options) = push {
        let options = options
            // The fuzzer may find addresses of real machines, so no delivery may be sent.
            .running_max(0);
        let push = PushNotifications::open(manager, log, root, options).await;
        service = service.push(push.expect("an empty store opens"));
    }
    let card = agent_card(&AgentDescription {
        name: "quick".into(),
        description: "ends at once".into(),
        version: "1".into(),
        http_url: "http://127.0.0.1:1".into(),
        grpc_url: None,
    });
    let service = Arc::new(service);
    let access = AccessControl::new(Arc::new(NoAuthentication));
    http_router(&service, card, access.clone()).merge(grpc_router(&service, access))
}

/// Complete answer to a request.
pub(crate) struct WholeAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    /// True for a stream that had not ended when the reading stopped.
    pub(crate) is_open: bool,
}

/// Sends a request and reads its complete answer within the time limit. Only a subscription may stay open, because its
/// task may wait for its client. The answer of an open subscription contains the bytes so far.
pub(crate) async fn answer(router: &Router, request: Request<Body>) -> WholeAnswer {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body in memory").to_bytes();
    let mentions = |text: &[u8]| {
        text.windows(9)
            .any(|at| at.eq_ignore_ascii_case(b"subscribe"))
    };
    // JSON can spell the name of a method with escapes, so a body with a backslash may also be a subscription.
    let may_stay_open =
        mentions(parts.uri.path().as_bytes()) || mentions(&body) || body.contains(&b'\\');
    let request = Request::from_parts(parts, Body::from(body));
    let response = tokio::time::timeout(ANSWER_MAX, router.clone().oneshot(request)).await;
    let response = response
        .expect("an answer that begins")
        .expect("infallible");
    let (head, mut body) = response.into_parts();
    let mut answer = WholeAnswer {
        status: head.status,
        headers: head.headers,
        body: Vec::new(),
        trailers: None,
        is_open: false,
    };
    let until = tokio::time::Instant::now() + ANSWER_MAX;
    loop {
        match tokio::time::timeout_at(until, body.frame()).await {
            Ok(None) => return answer,
            Ok(Some(frame)) => match frame.expect("a body without an error").into_data() {
                Ok(data) => answer.body.extend(data),
                Err(frame) => answer.trailers = frame.into_trailers().ok(),
            },
            Err(_elapsed) => {
                assert!(may_stay_open, "an answer that ends");
                answer.is_open = true;
                return answer;
            }
        }
    }
}

/// Runtime with a paused clock: a request that hangs is found without a real wait.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}
