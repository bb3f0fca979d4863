//! Tools with an external handler: answers, cancellations, late answers, panics, disconnects and a full queue.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{CallId, Cause, CauseKind, Effect, Extent, Receipt, TraceContext};
use allstop_scope::{RootOptions, Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec};
use allstop_tools::external::{Delivery, ExternalRequest, LateAnswer, RequestId};
use allstop_tools::{
    CallLink, CallObserver, CallProgress, ExternalEvent, ExternalOptions, ExternalRequests, Tool,
    ToolError, ToolInvocation, ToolOutput, ToolSpec, external_tools,
};
use futures::FutureExt as _;
use parking_lot::Mutex;
use serde_json::json;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A turn with one external tool. Records the shown output and the late answers.
struct Stage {
    turn: Scope,
    tool: Arc<dyn Tool>,
    late: Arc<Mutex<Vec<LateAnswer>>>,
    shown: Arc<Shown>,
}

#[derive(Default)]
struct Shown(Mutex<Vec<String>>);

impl CallObserver for Shown {
    fn output(&self, call_id: &CallId, output: &[u8]) {
        let text = str::from_utf8(output).unwrap();
        self.0.lock().push(format!("{call_id}: {text}"));
    }

    fn progress(&self, _call_id: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}
}

type Call = WorkHandle<Result<ToolOutput, ToolError>>;

fn stage(effect: Effect, queue_len_max: usize) -> (Stage, ExternalRequests) {
    let options = ExternalOptions::default().queue_len_max(queue_len_max);
    stage_with(effect, options)
}

fn stage_with(effect: Effect, mut options: ExternalOptions) -> (Stage, ExternalRequests) {
    let late: Arc<Mutex<Vec<LateAnswer>>> = Arc::default();
    let heard = Arc::clone(&late);
    options.on_late_answer = Arc::new(move |answer| heard.lock().push(answer));
    let spec = ToolSpec::new("deploy", "Deploys.", Arc::new(json!({"type": "object"})))
        .effect(effect)
        .parallel(true);
    let (mut tools, requests) = external_tools(vec![spec], options);
    let stage = Stage {
        turn: Scope::root("turn", RootOptions::single_runtime()),
        tool: tools.remove(0),
        late,
        shown: Arc::default(),
    };
    (stage, requests)
}

impl Stage {
    /// Starts a call like the agent loop, so that the call is one item of the receipt.
    fn call(&self, id: &'static str) -> Call {
        let effect = self.tool.spec().effect;
        let unit = WorkSpec::new(ItemKind::ToolCall, "deploy")
            .id(id)
            .effect(effect);
        let options = ScopeOptions::default().unit(unit);
        let scope = self.turn.child(id, options).unwrap();
        let invocation = ToolInvocation {
            session_id: "s".into(),
            call_id: id.into(),
            name: "deploy".into(),
            arguments: Arc::new(json!({"to": "production"})),
            scope: scope.clone(),
            trace: TraceContext::new(TRACE),
            link: CallLink::new(id.into(), Arc::clone(&self.shown) as _),
            mcp_meta: allstop_tools::McpMeta::default(),
        };
        let tool = Arc::clone(&self.tool);
        let call = async move { tool.call(invocation).await };
        scope
            .spawn(WorkSpec::new(ItemKind::ToolCall, "deploy"), |_| call)
            .unwrap()
    }

    async fn stop(&self) -> Arc<Receipt> {
        let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User));
        self.turn.stop(order).await
    }
}

async fn taken(requests: &mut ExternalRequests) -> ExternalRequest {
    match requests.next().await {
        Some(ExternalEvent::Call(request)) => request,
        other => panic!("no call, but {other:?}"),
    }
}

async fn cancelled(requests: &mut ExternalRequests) -> (RequestId, Cause) {
    match requests.next().await {
        Some(ExternalEvent::Cancelled { request_id, cause }) => (request_id, cause),
        other => panic!("no cancellation, but {other:?}"),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what a handler answers with")]
fn output(text: &str) -> Result<ToolOutput, ToolError> {
    Ok(text.into())
}

fn failure(text: &str) -> Result<ToolOutput, ToolError> {
    Err(ToolError::new(text.to_owned()))
}

async fn said(call: Call) -> Result<String, String> {
    let answer = call.await.expect("the call returns");
    answer
        .map(|output| output.content.to_string())
        .map_err(|error| error.message)
}

/// Returns the state and the method of the receipt's only item.
fn item(receipt: &Receipt) -> serde_json::Value {
    assert_eq!(receipt.items().len(), 1, "{receipt:?}");
    let item = serde_json::to_value(&receipt.items()[0]).unwrap();
    json!([item["state"], item["how"]])
}

#[tokio::test(start_paused = true)]
async fn request_has_all_fields_and_is_answered_once() {
    let (stage, mut requests) = stage(Effect::Irreversible, 8);
    let handler = requests.handler();
    let (one, two) = (stage.call("one"), stage.call("two"));
    let (first, second) = (taken(&mut requests).await, taken(&mut requests).await);
    assert_ne!(first.request_id, second.request_id);
    assert_eq!(
        (
            first.session_id.as_str(),
            first.call_id.as_str(),
            &*first.name
        ),
        ("s", "one", "deploy")
    );
    assert_eq!(*first.arguments, json!({"to": "production"}));
    assert_eq!(first.trace, TraceContext::new(TRACE));
    assert_eq!(
        handler.progress(first.request_id, "half"),
        Delivery::Delivered
    );
    // The answers arrive in reverse order and find their calls by request id.
    assert_eq!(
        handler.answer(second.request_id, failure("no room")),
        Delivery::Delivered
    );
    assert_eq!(
        handler.answer(first.request_id, output("done")),
        Delivery::Delivered
    );
    assert_eq!(
        handler.answer(first.request_id, output("again")),
        Delivery::Unknown
    );
    assert_eq!(
        handler.progress(first.request_id, "more"),
        Delivery::Unknown
    );
    assert_eq!(
        handler.answer(RequestId(77), output("?")),
        Delivery::Unknown
    );
    assert_eq!(said(one).await.as_deref(), Ok("done"));
    assert_eq!(said(two).await, Err("no room".to_owned()));
    assert_eq!(*stage.shown.0.lock(), ["one: half"]);
    assert!(stage.turn.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn confirmed_cancellation_stops_the_call() {
    let (stage, mut requests) = stage(Effect::Irreversible, 8);
    let call = stage.call("one");
    let request = taken(&mut requests).await;
    let stop = stage
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)));
    let (id, cause) = cancelled(&mut requests).await;
    assert_eq!((id, cause.kind), (request.request_id, CauseKind::User));
    assert_eq!(
        requests.handler().confirm_cancelled(id),
        Delivery::Delivered
    );
    let receipt = stop.await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(item(&receipt), json!(["stopped", "remote_confirmed"]));
    assert!(said(call).await.is_err());
    assert!(stage.late.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn answer_within_the_grace_is_a_result() {
    let (stage, mut requests) = stage(Effect::Irreversible, 8);
    let call = stage.call("one");
    let request = taken(&mut requests).await;
    let stop = stage
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)));
    let answered = requests
        .handler()
        .answer(request.request_id, output("done"));
    assert_eq!(answered, Delivery::Delivered);
    let receipt = stop.await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(item(&receipt), json!(["finished", null]));
    assert_eq!(said(call).await.as_deref(), Ok("done"));
}

/// The stop does not wait for a confirmation, and the receipt does not claim a confirmation.
#[tokio::test(start_paused = true)]
async fn handler_that_confirms_nothing_does_not_delay_a_stop() {
    let options = ExternalOptions::default().confirms_cancellation(false);
    let (stage, mut requests) = stage_with(Effect::Irreversible, options);
    let (first, second) = (stage.call("one"), stage.call("two"));
    let one = taken(&mut requests).await;
    assert!(requests.handler().is_open(one.request_id));
    let begun = tokio::time::Instant::now();
    let receipt = stage.stop().await;
    assert!(begun.elapsed().is_zero(), "{:?}", begun.elapsed());
    assert!(!receipt.quiet(), "{receipt:?}");
    let states = receipt.items().iter().map(|item| item.state.as_str());
    assert_eq!(states.collect::<Vec<_>>(), ["unreachable", "stopped"]);
    assert!(said(first).await.is_err() && said(second).await.is_err());
    // The event of the cancellation is still in the queue.
    assert!(!requests.handler().is_open(one.request_id));
    assert_eq!(cancelled(&mut requests).await.0, one.request_id);
    let late = requests.handler().answer(one.request_id, output("done"));
    assert_eq!(late, Delivery::Late);
}

#[tokio::test(start_paused = true)]
async fn silent_handler_is_unreachable_and_its_late_answer_is_dropped() {
    let (stage, mut requests) = stage(Effect::Irreversible, 8);
    let handler = requests.handler();
    let call = stage.call("one");
    let request = taken(&mut requests).await;
    let receipt = stage.stop().await;
    assert!(!receipt.quiet(), "{receipt:?}");
    assert_eq!(item(&receipt)[0], "unreachable");
    assert!(call.await.is_err(), "its future was not dropped");
    assert_eq!(cancelled(&mut requests).await.0, request.request_id);
    assert_eq!(
        handler.progress(request.request_id, "still at it"),
        Delivery::Late
    );
    assert_eq!(
        handler.answer(request.request_id, output("done")),
        Delivery::Late
    );
    let late = LateAnswer {
        session_id: "s".into(),
        call_id: "one".into(),
        name: "deploy".into(),
    };
    assert_eq!(*stage.late.lock(), [late]);
    assert_eq!(handler.late_answers(), 1);
    // A second late answer is unknown, and only one cancellation was sent.
    assert_eq!(
        handler.answer(request.request_id, output("done")),
        Delivery::Unknown
    );
    assert!(
        requests.next().now_or_never().is_none(),
        "a second cancellation was sent"
    );
    handler.disconnect();
    assert!(requests.next().await.is_none());
    assert!(stage.shown.0.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stopped_call_in_the_queue_never_reaches_the_handler() {
    let (stage, mut requests) = stage(Effect::Irreversible, 8);
    let call = stage.call("one");
    tokio::task::yield_now().await;
    let receipt = stage.stop().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(item(&receipt), json!(["stopped", "not_begun"]));
    assert!(said(call).await.unwrap_err().contains("nothing was done"));
    assert!(requests.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn disconnected_handler_fails_running_and_later_calls_at_once() {
    for by_drop in [true, false] {
        let (stage, mut requests) = stage(Effect::Irreversible, 8);
        let handler = requests.handler();
        let (running, waiting) = (stage.call("one"), stage.call("two"));
        let request = taken(&mut requests).await;
        let before = tokio::time::Instant::now();
        let kept = if by_drop {
            drop(requests);
            None
        } else {
            handler.disconnect();
            Some(requests)
        };
        let error = said(running).await.unwrap_err();
        assert!(
            error.contains("has disconnected; the outcome of the call is unknown"),
            "{error}"
        );
        let error = said(waiting).await.unwrap_err();
        assert!(
            error.contains("has disconnected; it had not taken the call"),
            "{error}"
        );
        let error = said(stage.call("three")).await.unwrap_err();
        assert!(error.contains("has disconnected"), "{error}");
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(
            handler.answer(request.request_id, output("x")),
            Delivery::Unknown
        );
        assert!(stage.turn.is_quiet());
        drop(kept);
    }
}

#[tokio::test(start_paused = true)]
async fn disconnect_before_a_confirmation_makes_the_call_unreachable() {
    let (stage, mut requests) = stage(Effect::ReadOnly, 8);
    let call = stage.call("one");
    let _request = taken(&mut requests).await;
    let stop = stage
        .turn
        .stop(StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)));
    drop(requests);
    let receipt = stop.await;
    assert_eq!(item(&receipt)[0], "unreachable");
    assert!(said(call).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn full_queue_is_an_error_result_without_a_wait() {
    let (stage, mut requests) = stage(Effect::Irreversible, 2);
    let (one, two) = (stage.call("one"), stage.call("two"));
    let error = said(stage.call("three")).await.unwrap_err();
    assert_eq!(
        error,
        "the handler of this tool is too slow: 2 calls are waiting for it"
    );
    // Each request that the handler takes makes space for one more request in the queue.
    let first = taken(&mut requests).await;
    let four = stage.call("four");
    tokio::task::yield_now().await;
    let handler = requests.handler();
    let (second, fourth) = (taken(&mut requests).await, taken(&mut requests).await);
    for request in [first, second, fourth] {
        handler.answer(request.request_id, output(request.call_id.as_str()));
    }
    for (call, name) in [(one, "one"), (two, "two"), (four, "four")] {
        assert_eq!(said(call).await.as_deref(), Ok(name));
    }
}

#[tokio::test(start_paused = true)]
async fn local_handler_may_panic_and_a_stop_drops_its_future() {
    let (stage, requests) = stage(Effect::Irreversible, 8);
    let handling = Scope::root("handler", RootOptions::single_runtime());
    let handler = requests.handler();
    let served = requests.serve(|request| async move {
        match request.call_id.as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            name => output(name),
        }
    });
    let serving = handling.spawn(WorkSpec::new(ItemKind::Future, "serve"), |_| served);
    let (panics, fine) = (stage.call("panics"), stage.call("fine"));
    assert_eq!(said(panics).await, Err("the handler panicked".to_owned()));
    assert_eq!(said(fine).await.as_deref(), Ok("fine"));
    let hangs = stage.call("hangs");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let receipt = stage.stop().await;
    assert!(receipt.quiet(), "{receipt:?}");
    assert_eq!(item(&receipt), json!(["stopped", "remote_confirmed"]));
    assert!(said(hangs).await.is_err());
    handler.disconnect();
    assert!(serving.unwrap().await.is_ok());
}
