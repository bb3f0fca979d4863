//! Tools with an external handler: the cancellation after a stop, a late answer, and the trace context.

use std::sync::Arc;

use allstop_core::receipt::ItemState;
use allstop_core::record::{CallOutcome, SessionRecord};
use allstop_core::{StopReason, TraceContext};
use allstop_model::Reply;
use allstop_session::{NewMessage, SessionOptions, StopTarget};
use allstop_tools::external::{Delivery, ExternalEvent, ExternalOptions, external_tools};
use allstop_tools::{ToolOutput, ToolRegistry, ToolSpec};
use serde_json::json;

use crate::support::{agent, fixture, in_order, user};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn spec() -> ToolSpec {
    ToolSpec::new("remote", "elsewhere", Arc::new(json!({"type": "object"}))).parallel(true)
}

fn answer(text: &str) -> ToolOutput {
    text.into()
}

/// A stop cancels the scope, but does not change the trace context. A handler that does not answer may still work, and
/// the receipt of the stop reports this.
#[tokio::test(start_paused = true)]
async fn late_answer_of_an_external_handler_is_discarded() {
    let (external, mut requests) = external_tools(vec![spec()], ExternalOptions::default());
    let mut registry = ToolRegistry::new();
    for tool in external {
        registry.register(tool).unwrap();
    }
    let model = in_order(vec![
        Reply::text("").call("remote", json!({})),
        // Other arguments, because a repetition of a call with an unknown outcome would be denied.
        Reply::text("").call("remote", json!({"again": true})),
        Reply::text("done"),
    ]);
    let fixture = fixture(
        agent(&model).tools(registry).build(),
        SessionOptions::default(),
    )
    .await;
    let handler = requests.handler();
    let traced = NewMessage {
        trace: TraceContext::new(TRACE),
        ..NewMessage::from("go")
    };
    let sent = fixture.session.send(traced).unwrap();
    let Some(ExternalEvent::Call(request)) = requests.next().await else {
        panic!("a request comes first");
    };
    assert_eq!(request.trace, TraceContext::new(TRACE));
    let stopping = fixture.session.stop(&StopTarget::Turn, user());
    let Some(ExternalEvent::Cancelled { request_id, .. }) = requests.next().await else {
        panic!("then the cancellation");
    };
    assert_eq!(request_id, request.request_id);
    let receipt = stopping.receipt().await;
    assert!(
        !receipt.quiet() && !receipt.cancel_observed(),
        "unknown: {receipt:?}"
    );
    let unreachable = |state: &ItemState| matches!(state, ItemState::Unreachable { .. });
    assert!(receipt.items().iter().any(|item| unreachable(&item.state)));
    assert_eq!(sent.outcome().await.stop_reason, StopReason::Cancelled);
    assert_eq!(
        handler.answer(request.request_id, Ok(answer("late"))),
        Delivery::Late
    );
    assert_eq!(handler.late_answers(), 1);
    let finished: Vec<_> = fixture
        .records()
        .await
        .into_iter()
        .filter_map(|record| match record {
            SessionRecord::CallFinished { id, outcome, .. } if id == request.call_id => {
                Some(outcome)
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        finished,
        [CallOutcome::Unknown],
        "one completion record, which claims nothing"
    );

    // The call of the next turn receives its own answer, not the late answer.
    let next = fixture.session.send("again").unwrap();
    let Some(ExternalEvent::Call(request)) = requests.next().await else {
        panic!("a request");
    };
    assert_eq!(request.trace, None);
    assert_eq!(
        handler.answer(request.request_id, Ok(answer("in time"))),
        Delivery::Delivered
    );
    assert_eq!(&*next.outcome().await.output, "done");
    fixture.session.close().await;
}
