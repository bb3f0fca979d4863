//! Calls that are abandoned at unusual moments: before the call is sent, while the server does not read, or during a
//! restart.

use std::time::Duration;

use allstop_core::{CallId, Cause, CauseKind, Extent};
use allstop_scope::StopRequest;
use allstop_tools::mcp::OnIgnoredCancel;
use allstop_tools::{CallLink, CallObserver, CallProgress, NotPromotable};
use serde_json::json;

use crate::support::{LONG_GRACE, Place, only_item, wait_until, within};

#[tokio::test]
async fn stopped_call_that_waits_for_the_server_is_never_sent() {
    let place = Place::new("hang_later").await;
    place.call("t__exit", json!({})).await.unwrap_err();
    wait_until("it is started again", || place.count("initialize") == 2).await;
    let call = place.start("t__wait", json!({}));
    tokio::task::yield_now().await;
    let receipt = call.stop().await;
    assert!(receipt.quiet(), "{receipt:#?}");
    let error = call.answer().await.unwrap_err();
    assert!(error.starts_with("stopped: user"), "{error}");
    assert_eq!(place.count("tools/call"), 1, "{}", place.log());
    assert_eq!(place.cancellations(), []);
}

#[tokio::test]
async fn unread_call_is_unreachable_and_delays_no_other() {
    let place = Place::new("deaf").await;
    // The text is larger than a pipe, so the message is only partly written.
    let call = place.start("t__echo", json!({"text": "x".repeat(500_000)}));
    tokio::task::yield_now().await;
    let receipt = call.stop().await;
    assert_eq!(only_item(&receipt)["state"], "unreachable");
    let next = place.start("t__echo", json!({"text": "x"}));
    tokio::task::yield_now().await;
    assert_eq!(only_item(&*next.stop().await)["state"], "unreachable");
    within(place.servers.close()).await;
    wait_until("nothing runs", || place.root.is_quiet()).await;
}

#[tokio::test]
async fn unread_call_ends_with_its_server_if_configured() {
    let place = Place::with("deaf", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let call = place.start("t__echo", json!({"text": "x".repeat(500_000)}));
    tokio::task::yield_now().await;
    let item = only_item(&*call.stop().await);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
}

#[tokio::test]
async fn stop_during_the_end_of_a_server_spares_the_next_one() {
    let place = Place::with("stubborn", |config| {
        config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    })
    .await;
    let call = place.start_and_reach("t__wait", json!({})).await;
    // The first stop ends the server; the second one comes before the server has ended.
    let order = StopRequest::new(Extent::Call, Cause::new(CauseKind::User)).grace(LONG_GRACE);
    let first = call.scope.stop(order.clone());
    wait_until("it is being ended", || place.log().contains("end of input")).await;
    let _second = within(call.scope.stop(order).receipt()).await;
    let item = only_item(&*within(first.receipt()).await);
    assert_eq!(item["state"], "stopped", "{item}");
    wait_until("it is there again", || place.state().to_string() == "ready").await;
    let next = place.start_and_reach("t__wait", json!({"ms": 300})).await;
    assert_eq!(next.answer().await.unwrap(), "waited");
    assert_eq!(place.cancellations().len(), 1, "{}", place.log());
}

struct Nobody;

impl CallObserver for Nobody {
    fn output(&self, _call: &CallId, _output: &[u8]) {}

    fn progress(&self, _call: &CallId, _progress: &CallProgress) {}

    fn heartbeat(&self) {}
}

#[tokio::test]
async fn refused_promotion_does_not_cancel_the_call() {
    let place = Place::new("").await;
    let link = CallLink::new(CallId::new("call_1"), std::sync::Arc::new(Nobody));
    let call = place.start_with("t__wait", json!({"ms": 500}), link.clone());
    wait_until("the server has the call", || place.count("tools/call") == 1).await;
    assert_eq!(link.promote(), Err(NotPromotable));
    assert_eq!(call.answer().await.unwrap(), "waited");
    assert_eq!(place.cancellations(), []);
}

#[tokio::test]
async fn many_dropped_calls_are_cancelled_once_each() {
    let place = Place::new("").await;
    let calls: Vec<_> = (0..20).map(|_| place.start("t__wait", json!({}))).collect();
    wait_until("the server has them", || place.count("tools/call") == 20).await;
    let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User)).grace(Duration::ZERO);
    let receipt = within(place.turn.stop(order).receipt()).await;
    assert_eq!(receipt.items().len(), 20);
    wait_until("they came", || place.cancellations().len() == 20).await;
    let mut ids: Vec<_> = place
        .cancellations()
        .iter()
        .map(|(id, _)| id.to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    drop(calls);
}
