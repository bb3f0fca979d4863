//! Answers to cancelled calls over streamable HTTP, and calls that fail alone.

use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{RootOptions, Scope, StopRequest};
use serde_json::json;

use crate::http::{calls, log, serve, serve_with};
use crate::support::{Place, cancellations, only_item, wait_until, within};

/// The response of a cancelled call stays open, so the server can confirm the end of the call.
#[tokio::test]
async fn error_after_the_cancellation_over_http_is_a_confirmation() {
    let theirs = Scope::root("theirs", RootOptions::single_runtime());
    // A server with the extension answers after the end of its command, so it has more time.
    for (confirms, confirm_ms) in [(false, 100), (true, 900)] {
        for form in ["json", "events"] {
            let (url, got) = serve_with(&theirs, confirms).await;
            let place = Place::over_http(&url).await;
            let arguments = json!({"confirm_ms": confirm_ms, "as": form});
            let call = place.start("t__wait", arguments);
            wait_until("the server has the call", || calls(&got) == 1).await;
            let receipt = call.stop().await;
            let item = only_item(&receipt);
            assert_eq!(item["state"], "stopped", "{form}, {confirms}: {item}");
            assert_eq!(item["how"], "remote_confirmed", "{item}");
            assert!(receipt.quiet());
            assert_eq!(cancellations(&log(&got)).len(), 1);
        }
    }
}

/// A stop of the program ends the connection only after the answer.
#[tokio::test]
async fn stop_of_everything_waits_for_the_confirmation_over_http() {
    let theirs = Scope::root("theirs", RootOptions::single_runtime());
    let (url, got) = serve_with(&theirs, true).await;
    let place = Place::over_http(&url).await;
    let call = place.start("t__wait", json!({"confirm_ms": 900}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = within(place.root.stop(order).receipt()).await;
    assert!(receipt.quiet(), "{receipt:#?}");
    let items = receipt.items().iter();
    let item = items.clone().find(|item| &*item.name == "t__wait").unwrap();
    let item = serde_json::to_value(item).unwrap();
    assert_eq!(item["how"], "remote_confirmed", "{item}");
    assert_eq!(cancellations(&log(&got)).len(), 1);
    drop(call);
}

/// A proxy or a server may refuse one request.
#[tokio::test]
async fn refused_request_over_http_fails_alone() {
    let theirs = Scope::root("theirs", RootOptions::single_runtime());
    let (url, got) = serve(&theirs).await;
    let place = Place::over_http(&url).await;
    let sibling = place.start("t__wait", json!({"ms": 700}));
    wait_until("the server has the call", || calls(&got) == 1).await;
    let error = place.call("t__forbidden", json!({})).await.unwrap_err();
    assert!(error.contains("403 Forbidden: not this tool"), "{error}");
    assert!(!error.contains("cannot be reached"), "{error}");
    assert!(error.contains("refused the call"), "{error}");
    assert!(!error.contains("outcome is unknown"), "{error}");
    assert_eq!(sibling.answer().await.unwrap(), "waited");
    assert_eq!(place.state().to_string(), "ready");
    // A message after a cancellation arrives after it.
    let echoed = place.call("t__echo", json!({"text": "on"})).await;
    assert_eq!(echoed.unwrap(), "on");
    assert_eq!(cancellations(&log(&got)).len(), 0);
}
