//! The effect of a stop on a call at an MCP server, and the receipt of the stop.

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind, Extent, TraceContext};
use allstop_scope::{Deadline, StopRequest};
use allstop_tools::mcp::{CANCEL_SETTLE, OnIgnoredCancel};
use serde_json::json;

use crate::support::{Place, only_item, wait_until, within};

#[tokio::test]
async fn call_with_an_ignored_cancellation_is_unreachable() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    let began = Instant::now();
    let receipt = call.stop().await;
    let took = began.elapsed();
    let item = only_item(&receipt);
    assert_eq!(item["state"], "unreachable", "{item}");
    assert_eq!(item["why"], "not_confirmed");
    assert!(
        item["note"]
            .as_str()
            .unwrap()
            .contains("notifications/cancelled"),
        "{item}"
    );
    assert!(!receipt.quiet() && !receipt.cancel_observed());
    assert!(took < Duration::from_millis(900), "{took:?}");
    let error = call.answer().await.unwrap_err();
    assert!(error.contains("may still be running"), "{error}");
    let [(id, reason)] = place.cancellations().try_into().unwrap();
    assert!(place.log().contains(&format!("\"id\":{id}")));
    assert_eq!(reason, "user (test)");
    assert_eq!(
        place.call("t__echo", json!({"text": "hi"})).await.unwrap(),
        "hi"
    );
}

#[tokio::test]
async fn silence_after_a_cancellation_is_no_confirmation() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "silent"}))
        .await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
}

#[tokio::test]
async fn error_after_the_cancellation_is_a_confirmation() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "error"}))
        .await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "remote_confirmed");
    assert_eq!(item["verified"], "remote_confirmed", "{item}");
    assert!(receipt.quiet());
    assert_eq!(place.cancellations().len(), 1);
}

#[tokio::test]
async fn result_after_the_cancellation_counts() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "result"}))
        .await;
    let receipt = call.stop().await;
    assert_eq!(only_item(&receipt)["state"], "finished");
    assert_eq!(call.answer().await.unwrap(), "cut short");
}

#[tokio::test]
async fn late_answer_never_reaches_the_next_call() {
    let place = Place::new("").await;
    let late = json!({"on_cancel": "late", "late_ms": 500});
    let call = place.start_and_reach("t__wait", late).await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    // The next call waits while the late answer arrives.
    let next = place.call("t__wait", json!({"ms": 700})).await;
    assert_eq!(next.unwrap(), "waited");
    assert_eq!(place.cancellations().len(), 1);
}

#[tokio::test]
async fn timed_out_call_is_cancelled_and_the_turn_continues() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    call.scope.arm(Deadline {
        at: tokio::time::Instant::now() + Duration::from_millis(50),
        stops: None,
        detail: "tool timeout of 50ms".into(),
        extent: Extent::Call,
        bystanders: Vec::new(),
    });
    let error = call.answer().await.unwrap_err();
    assert!(error.contains("tool timeout of 50ms"), "{error}");
    let [(_, reason)] = place.cancellations().try_into().unwrap();
    assert_eq!(reason, "deadline (tool timeout of 50ms)");
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

#[tokio::test]
async fn forced_stop_cancels_once_too() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    // The stop uses force before the call itself can react.
    let receipt = call.stop_with(Some(Duration::ZERO)).await;
    assert_eq!(only_item(&receipt)["state"], "unreachable");
    wait_until("the cancellation came", || {
        !place.cancellations().is_empty()
    })
    .await;
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
    assert_eq!(place.cancellations().len(), 1);
}

#[tokio::test]
async fn dropped_call_is_cancelled() {
    let place = Place::new("").await;
    let tool = place.tool("t__wait");
    let scope = place
        .turn
        .child("call", allstop_scope::ScopeOptions::default())
        .unwrap();
    let invocation = allstop_tools::ToolInvocation {
        session_id: "s".into(),
        call_id: "c".into(),
        name: "t__wait".into(),
        arguments: std::sync::Arc::new(json!({})),
        scope: scope.clone(),
        trace: TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01")
            .map(|trace| trace.with_tracestate("vendor=a").with_baggage("user=7")),
        link: allstop_tools::CallLink::default(),
        mcp_meta: allstop_tools::McpMeta::default(),
    };
    let mut call = tool.call(invocation);
    tokio::select! {
        _ = &mut call => panic!("it waits"),
        () = wait_until("the server has the call", || place.log().contains("\"tools/call\"")) => {}
    }
    assert!(
        place.log().contains("0af7651916cd43dd8448eb211c80319c"),
        "{}",
        place.log()
    );
    for header in ["\"tracestate\":\"vendor=a\"", "\"baggage\":\"user=7\""] {
        assert!(place.log().contains(header), "{}", place.log());
    }
    drop(call);
    wait_until("the cancellation came", || {
        !place.cancellations().is_empty()
    })
    .await;
    let [(_, reason)] = place.cancellations().try_into().unwrap();
    assert_eq!(reason, "the call was abandoned");
    assert!(scope.is_quiet());
}

#[tokio::test]
async fn answered_call_is_not_cancelled() {
    let place = Place::new("").await;
    let call = place.start("t__echo", json!({"text": "x"}));
    let scope = call.scope.clone();
    call.answer().await.unwrap();
    let order = StopRequest::new(Extent::Call, Cause::new(CauseKind::User));
    let _receipt = within(scope.stop(order).receipt()).await;
    place
        .call("t__echo", json!({"text": "barrier"}))
        .await
        .unwrap();
    assert_eq!(place.cancellations(), []);
}

#[tokio::test]
async fn server_that_ignores_a_cancellation_is_ended_if_configured() {
    let place = Place::with("", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "connection_closed");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    assert_eq!(item["containment"], "group_and_marker");
    assert!(
        item["note"]
            .as_str()
            .unwrap()
            .contains("its input was closed"),
        "{item}"
    );
    assert!(receipt.quiet());
    assert!(place.log().contains("end of input"));
    // The server is restarted.
    wait_until("it is there again", || place.state().to_string() == "ready").await;
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

#[tokio::test]
async fn stop_without_grace_ends_the_server_too() {
    let place = Place::with("", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    let receipt = call.stop_with(Some(Duration::ZERO)).await;
    let item = only_item(&receipt);
    // No part of the call runs any more, but the call may have completed its work before.
    assert_eq!(item["state"], "unknown", "{item}");
    assert!(
        item["note"]
            .as_str()
            .unwrap()
            .contains("its server was ended"),
        "{item}"
    );
    assert!(receipt.quiet());
}

#[tokio::test]
async fn server_that_ignores_sigterm_is_killed() {
    let place = Place::with("stubborn", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    let item = only_item(&*call.stop().await);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "sigkill", "{item}");
}

#[tokio::test]
async fn server_with_other_calls_is_not_ended() {
    let place = Place::with("", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let other = place.start_and_reach("t__wait", json!({"ms": 1500})).await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    assert_eq!(other.answer().await.unwrap(), "waited");
}

#[tokio::test]
async fn stopped_call_ends_with_its_server_before_a_close() {
    for is_announced_first in [true, false] {
        let place = Place::new("").await;
        let call = place.start_and_reach("t__wait", json!({})).await;
        if is_announced_first {
            place.servers.end_with_stopped_calls();
        }
        let began = Instant::now();
        let stopping = call.begin_stop(None);
        // The announcement can also follow the stop, because another terminal may stop the last turn of a program.
        place.servers.end_with_stopped_calls();
        let receipt = within(stopping.receipt()).await;
        let took = began.elapsed();
        let item = only_item(&receipt);
        assert_eq!(item["state"], "stopped", "{item}");
        assert_eq!(item["how"], "connection_closed");
        assert_eq!(item["verified"], "process_group_empty", "{item}");
        assert!(receipt.quiet());
        assert!(took < CANCEL_SETTLE, "{took:?}");
        let [(_, reason)] = place.cancellations().try_into().unwrap();
        assert_eq!(reason, "user (test)");
        assert!(place.log().contains("end of input"));
        // The server does not start again.
        wait_until("it is stopped", || place.state().to_string() == "stopped").await;
        let error = place.call("t__echo", json!({"text": "x"})).await;
        assert!(error.unwrap_err().contains("stopped"));
        within(place.servers.close()).await;
        assert_eq!(place.log().matches("started ").count(), 1);
    }
}

#[tokio::test]
async fn answer_before_a_close_is_a_confirmation() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "error"}))
        .await;
    place.servers.end_with_stopped_calls();
    let receipt = call.stop().await;
    assert_eq!(only_item(&receipt)["how"], "remote_confirmed");
    assert_eq!(place.state().to_string(), "ready");
    assert!(!place.log().contains("end of input"));
}

#[tokio::test]
async fn server_with_other_calls_is_not_ended_before_a_close() {
    let place = Place::new("").await;
    let other = place.start_and_reach("t__wait", json!({"ms": 1500})).await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    place.servers.end_with_stopped_calls();
    assert_eq!(only_item(&*call.stop().await)["state"], "unreachable");
    assert_eq!(other.answer().await.unwrap(), "waited");
}

#[tokio::test]
async fn calls_that_stop_one_after_the_other_end_with_their_server() {
    let place = Place::new("").await;
    let first = place.start_and_reach("t__wait", json!({})).await;
    let second = place.start_and_reach("t__wait", json!({})).await;
    place.servers.end_with_stopped_calls();
    let first = first.begin_stop(None);
    wait_until("the first is cancelled", || {
        place.cancellations().len() == 1
    })
    .await;
    let second = second.begin_stop(None);
    for stopping in [first, second] {
        let receipt = within(stopping.receipt()).await;
        assert_eq!(only_item(&receipt)["how"], "connection_closed");
    }
}

#[tokio::test]
async fn forced_stop_before_a_close_ends_the_server_too() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    place.servers.end_with_stopped_calls();
    let receipt = call.stop_with(Some(Duration::ZERO)).await;
    let item = only_item(&receipt);
    // No part of the call runs any more, but the call may have completed its work before.
    assert_eq!(item["state"], "unknown", "{item}");
    assert!(receipt.quiet());
}

#[tokio::test]
async fn stop_of_everything_ends_server_and_call() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = within(place.root.stop(order).receipt()).await;
    assert!(receipt.quiet(), "{receipt:#?}");
    for item in receipt.items() {
        let item = serde_json::to_value(item).unwrap();
        assert_eq!(item["state"], "stopped", "{item}");
    }
    let names: Vec<_> = receipt.items().iter().map(|item| &*item.name).collect();
    assert_eq!(names, ["mcp server t", "t__wait"]);
    drop(call);
    assert_eq!(place.state().to_string(), "stopped");
}
