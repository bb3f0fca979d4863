//! Lists of tools that change while the server runs.

use std::time::Duration;

use allstop_tools::ToolSource as _;
use serde_json::json;

use crate::support::{Place, wait_until};

#[tokio::test]
async fn tools_are_added_and_removed() {
    let place = Place::new("").await;
    let before = place.source().version();
    let change = json!({"add": "new", "remove": "put"});
    assert_eq!(place.call("t__change", change).await.unwrap(), "changed");
    wait_until("it is there", || place.has_tool("t__new")).await;
    assert!(!place.has_tool("t__put"));
    assert!(place.source().version() > before);
    assert_eq!(place.call("t__new", json!({})).await.unwrap(), "done");
}

#[tokio::test]
async fn unchanged_list_keeps_its_version() {
    let place = Place::new("").await;
    let before = place.source().version();
    place.call("t__change", json!({})).await.unwrap();
    wait_until("it was listed again", || place.count("tools/list") == 2).await;
    place
        .call("t__change", json!({"add": "new"}))
        .await
        .unwrap();
    wait_until("it is there", || place.has_tool("t__new")).await;
    assert_eq!(place.source().version(), before + 1);
}

#[tokio::test]
async fn call_continues_after_its_tool_is_removed() {
    let place = Place::new("").await;
    let call = place.start_and_reach("t__wait", json!({"ms": 1000})).await;
    place
        .call("t__change", json!({"remove": "wait"}))
        .await
        .unwrap();
    wait_until("it is gone", || !place.has_tool("t__wait")).await;
    assert_eq!(call.answer().await.unwrap(), "waited");
    assert_eq!(place.cancellations(), []);
}

#[tokio::test]
async fn notifications_in_quick_succession_are_one_change() {
    let place = Place::new("").await;
    let change = json!({"add": "new", "times": 500});
    place.call("t__change", change).await.unwrap();
    wait_until("it is there", || place.has_tool("t__new")).await;
    // One more change, which comes after all list requests that the first changes may have caused.
    let change = json!({"add": "newer"});
    place.call("t__change", change).await.unwrap();
    wait_until("it is there", || place.has_tool("t__newer")).await;
    assert!(!place.has_tool("t__new"));
    assert_eq!(place.count("tools/list"), 3);
}

#[tokio::test]
async fn failed_list_changes_nothing_and_is_retried() {
    let place = Place::new("").await;
    let change = json!({"add": "new", "remove": "put", "instead": "error"});
    place.call("t__change", change).await.unwrap();
    wait_until("it was asked for", || place.count("tools/list") == 2).await;
    assert_eq!(place.state().to_string(), "ready");
    assert_eq!(place.call("t__put", json!({})).await.unwrap(), "done");
    wait_until("it is there", || place.has_tool("t__new")).await;
    assert!(!place.has_tool("t__put"));
    assert_eq!(place.count("tools/list"), 3);
}

#[tokio::test]
async fn hanging_list_delays_no_call() {
    let place = Place::with("", |config| {
        config.handshake_timeout = Duration::from_secs(2);
    })
    .await;
    let change = json!({"add": "new", "instead": "hang"});
    place.call("t__change", change).await.unwrap();
    wait_until("it was asked for", || place.count("tools/list") == 2).await;
    let call = place.call("t__echo", json!({"text": "on"})).await;
    assert_eq!(call.unwrap(), "on");
    assert!(!place.has_tool("t__new"), "the list still hangs");
    wait_until("it is there", || place.has_tool("t__new")).await;
    // The list request that timed out was also cancelled.
    assert_eq!(place.cancellations().len(), 1);
}
