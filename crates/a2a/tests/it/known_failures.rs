//! Failures of other servers over the wire. The name of a test contains the number of the failure: `r` for
//! a2a-server-lf's default handler, `g` for a2a-go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allstop_a2a::RECEIPT_EXTENSION;
use allstop_task::model::Artifact;
use allstop_task::{ExecutionCx, Executor, ExecutorError, ExecutorReturn, TaskEvent, TaskState};
use axum::http::{HeaderValue, StatusCode};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::{
    ObedientAgent, answer, error_code, events, events_of, get, grpc_request, message, post, result,
    router_of, rpc,
};

/// Number of events of the quick executor: more events than the buffers of the failing server can contain.
const QUICK_EVENTS: usize = 200;

/// The agent of `support`, with additional commands: `slow` (needs a second after a stop), `deaf` (ignores a stop),
/// `quick` (writes many events), `panic`, and `early` (returns without an end). Counts the running executors.
#[derive(Clone, Default)]
struct CountedAgent {
    live: Arc<AtomicUsize>,
}

struct CountedExecution(Arc<AtomicUsize>);

impl Drop for CountedExecution {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CountedAgent {
    fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }
}

impl Executor for CountedAgent {
    fn execute(
        &self,
        cx: ExecutionCx,
    ) -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>> {
        self.live.fetch_add(1, Ordering::SeqCst);
        let execution = CountedExecution(Arc::clone(&self.live));
        async move {
            let _execution = execution;
            let text = format!("{:?}", cx.message.parts);
            if text.contains("quick") {
                for number in 0..QUICK_EVENTS {
                    let artifact = Artifact::text(format!("a{number}"), "x");
                    let _ended = cx.events.write(TaskEvent::artifact(artifact)).await;
                }
                let done = TaskEvent::state(TaskState::Completed);
                let _ended = cx.events.write(done).await;
                return Ok(ExecutorReturn::Finished);
            }
            let working = TaskEvent::state(TaskState::Working);
            if text.contains("slow") {
                let _ended = cx.events.write(working).await;
                cx.scope.stopped_at("waiting").await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            } else if text.contains("deaf") {
                let _ended = cx.events.write(working).await;
                std::future::pending::<()>().await;
            } else if text.contains("panic") {
                panic!("an executor of the test panics");
            } else if text.contains("early") {
                let _ended = cx.events.write(working).await;
            } else {
                return ObedientAgent.execute(cx).await;
            }
            Ok(ExecutorReturn::Finished)
        }
        .boxed()
    }
}

/// Sends a message with `returnImmediately`, so the call returns before the task ends. Returns the id of the task.
async fn begin(router: &axum::Router, text: &str) -> String {
    let mut params = message(text, text);
    params["configuration"] = json!({"returnImmediately": true});
    let sent = result(router, "SendMessage", &params).await;
    sent["task"]["id"].as_str().expect("an id").to_owned()
}

/// In the other server, a cancel is answered within 1 ms, and the executor keeps working.
#[tokio::test(start_paused = true)]
async fn r1_cancel_is_answered_after_the_executor_has_ended() {
    let agent = CountedAgent::default();
    let router = router_of(agent.clone()).await;
    for (text, is_rest) in [
        ("slow 1", false),
        ("deaf 1", false),
        ("slow 2", true),
        ("deaf 2", true),
    ] {
        let id = begin(&router, text).await;
        // After the first event of the task, its executor runs.
        events(&router, rpc("SubscribeToTask", &json!({"id": id})), 1).await;
        assert_eq!(agent.live(), 1, "{text}");
        let stopped = if is_rest {
            answer(&router, post(&format!("/tasks/{id}:cancel"), ""))
                .await
                .1
        } else {
            result(&router, "CancelTask", &json!({"id": id})).await
        };
        assert_eq!(agent.live(), 0, "{text}: the executor is live");
        assert_eq!(stopped["status"]["state"], "TASK_STATE_CANCELED", "{text}");
        let receipt = &stopped["metadata"][RECEIPT_EXTENSION]["receipt"];
        assert_eq!(receipt["quiet"], true, "{text}: {receipt}");
    }
}

/// In the other server, 19 of 20 blocking requests fail if the executor is faster than the reader.
#[tokio::test]
async fn r2_quick_events_fail_no_blocking_send() {
    let router = router_of(CountedAgent::default()).await;
    let sends = (0..20).map(|number| {
        let router = router.clone();
        async move {
            let params = message(&format!("m{number}"), "quick");
            result(&router, "SendMessage", &params).await
        }
    });
    for sent in join_all(sends).await {
        let task = &sent["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        let artifacts = task["artifacts"].as_array().map(Vec::len);
        assert_eq!(artifacts, Some(QUICK_EVENTS));
    }
}

/// In the other server, the task of a panicked executor stays "in progress" and refuses every message.
#[tokio::test]
async fn r3_panic_fails_the_task_and_the_next_message_is_accepted() {
    let agent = CountedAgent::default();
    let router = router_of(agent.clone()).await;
    let asked = result(&router, "SendMessage", &message("m1", "ask")).await;
    let id = asked["task"]["id"].clone();
    let mut panics = message("m2", "panic");
    panics["message"]["taskId"] = id.clone();
    let failed = result(&router, "SendMessage", &panics).await;
    assert_eq!(failed["task"]["status"]["state"], "TASK_STATE_FAILED");
    let stored = result(&router, "GetTask", &json!({"id": id})).await;
    assert_eq!(stored["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(agent.live(), 0);
    let mut next = message("m3", "echo");
    next["message"]["contextId"] = asked["task"]["contextId"].clone();
    let next = result(&router, "SendMessage", &next).await;
    assert_eq!(next["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// In the other server, an error and an early return of the executor leave the task in the state `working`.
#[tokio::test]
async fn r4_error_and_early_return_end_as_failed() {
    let agent = CountedAgent::default();
    let router = router_of(agent.clone()).await;
    for text in ["fail", "early"] {
        let failed = result(&router, "SendMessage", &message(text, text)).await;
        assert_eq!(
            failed["task"]["status"]["state"], "TASK_STATE_FAILED",
            "{text}"
        );
        let id = &failed["task"]["id"];
        let stored = result(&router, "GetTask", &json!({"id": id})).await;
        assert_eq!(stored["status"]["state"], "TASK_STATE_FAILED", "{text}");
        assert!(
            !stored["metadata"][RECEIPT_EXTENSION]["error"].is_null(),
            "{stored}"
        );
        let streamed = rpc("SendStreamingMessage", &message(&format!("{text} 2"), text));
        let streamed = events(&router, streamed, usize::MAX).await;
        let last = streamed.last().map(|(_, word)| word.as_str());
        assert_eq!(last, Some("failed"), "{text}: {streamed:?}");
        assert_eq!(agent.live(), 0, "{text}");
    }
}

/// In the other server, an executor that answers with a message leaves a submitted task in `ListTasks`.
#[tokio::test]
async fn r5_answer_with_a_message_leaves_no_task() {
    let router = router_of(CountedAgent::default()).await;
    let sent = result(&router, "SendMessage", &message("m", "reply")).await;
    assert!(sent["message"].is_object(), "{sent}");
    let streamed = rpc("SendStreamingMessage", &message("m2", "reply"));
    let streamed = events(&router, streamed, usize::MAX).await;
    let words: Vec<_> = streamed.iter().map(|(_, word)| word.as_str()).collect();
    assert_eq!(words, ["message"]);
    // The stream has the task before the agent decides to reply, so the reply ends this task.
    let late = rpc("SendStreamingMessage", &message("m3", "late reply"));
    let late = events(&router, late, usize::MAX).await;
    let words: Vec<_> = late.iter().map(|(_, word)| word.as_str()).collect();
    assert_eq!(words, ["task", "completed"]);
    let (status, listed) = answer(&router, get("/tasks")).await;
    assert_eq!(status, StatusCode::OK);
    let tasks = listed["tasks"].as_array().map_or(0, Vec::len);
    assert_eq!(
        (tasks, listed["totalSize"].as_i64().unwrap_or(0)),
        (0, 0),
        "{listed}"
    );
}

/// In the other server, a subscription to a task that waits for its client is reported as not found.
#[tokio::test]
async fn g5_task_that_waits_for_input_can_be_followed() {
    let router = router_of(CountedAgent::default()).await;
    let asked = result(&router, "SendMessage", &message("m1", "ask")).await;
    let id = asked["task"]["id"].as_str().expect("an id").to_owned();
    for (number, request) in [
        rpc("SubscribeToTask", &json!({"id": id})),
        post(&format!("/tasks/{id}:subscribe"), ""),
    ]
    .into_iter()
    .enumerate()
    {
        // The subscription exists as soon as the head of its response has arrived.
        let response = router.clone().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        let mut next = message(&format!("next {number}"), "ask");
        next["message"]["taskId"] = id.clone().into();
        result(&router, "SendMessage", &next).await;
        let followed = events_of(response.into_body(), usize::MAX).await;
        let words: Vec<_> = followed.iter().map(|(_, word)| word.as_str()).collect();
        assert_eq!(words, ["task", "submitted", "input_required"]);
    }
}

/// In the other server, a subscription to an ended task is reported as not found; the specification requires
/// `UnsupportedOperation`.
#[tokio::test]
async fn g6_subscription_to_an_ended_task_is_unsupported() {
    let router = router_of(CountedAgent::default()).await;
    let done = result(&router, "SendMessage", &message("m", "echo")).await;
    let id = done["task"]["id"].as_str().expect("an id").to_owned();
    let params = json!({"id": id});
    assert_eq!(
        error_code(&router, "SubscribeToTask", &params).await,
        -32004
    );
    let path = format!("/tasks/{id}:subscribe");
    let (_, body) = answer(&router, post(&path, "")).await;
    let reasons = [&body["error"]["details"][0]["reason"]];
    assert_eq!(reasons, ["UNSUPPORTED_OPERATION"], "{body}");
    // Field 2 of the request is the id.
    let len = u8::try_from(id.len()).expect("it is short");
    let field = [&[0x12, len], id.as_bytes()].concat();
    let request = grpc_request("SubscribeToTask", &field);
    let response = router.oneshot(request).await.expect("infallible");
    let status = response.headers().get("grpc-status");
    assert_eq!(
        status.map(HeaderValue::as_bytes),
        Some(&b"12"[..]),
        "{:?}",
        response.headers()
    );
}
