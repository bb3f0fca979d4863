//! MCP servers that hang, die, refuse or send invalid messages. Each bad server affects only its own tools, until the
//! server recovers.

use std::time::{Duration, Instant};

use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::StopRequest;
use serde_json::json;

use crate::support::{Place, wait_until, within};

async fn reason_of(mode: &str) -> String {
    let place = Place::with(mode, |config| {
        config.handshake_timeout = Duration::from_millis(300);
    })
    .await;
    let state = place.state().to_string();
    assert!(place.tools().is_empty());
    let order = StopRequest::new(Extent::Process, Cause::new(CauseKind::Shutdown));
    let receipt = within(place.root.stop(order).receipt()).await;
    assert!(receipt.quiet(), "{receipt:#?}");
    state
}

#[tokio::test]
async fn server_that_hangs_in_its_handshake_is_given_up() {
    let began = Instant::now();
    let state = reason_of("hang").await;
    assert!(
        state.starts_with("not available: it did not finish its handshake in 300ms"),
        "{state}"
    );
    assert!(state.contains("next attempt in 1 s"), "{state}");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn exit_reason_of_a_server_is_shown() {
    let state = reason_of("die").await;
    assert!(state.contains("exit code 3: no such database"), "{state}");
}

#[tokio::test]
async fn refusal_reason_of_a_server_is_shown() {
    let state = reason_of("refuse").await;
    assert!(state.contains("refused the handshake: not you"), "{state}");
}

#[tokio::test]
async fn endless_line_of_a_server_ends_the_connection() {
    let place = Place::new("endless").await;
    let state = place.state().to_string();
    assert!(
        state.contains("bytes in one message") || state.contains("closed the connection"),
        "{state}"
    );
}

/// An object key that the JSON library reserves for itself could make the library overflow the stack of this process.
#[tokio::test]
async fn reserved_keys_of_a_server_end_the_connection() {
    let place = Place::new("").await;
    let answer = place.call("t__mutter", json!({ "reserved": true })).await;
    let error = answer.expect_err("the answer cannot be read");
    assert!(error.contains("a key that is reserved"), "{error}");
}

/// A parser with a depth limit cannot read the answer. The call must not wait for another answer.
#[tokio::test]
async fn answer_that_is_nested_too_deep_ends_its_call() {
    let place = Place::new("").await;
    let answer = within(place.call("t__mutter", json!({ "deep": true }))).await;
    let error = answer.expect_err("the answer cannot be read");
    assert_eq!(
        error,
        "the call has ended, but the answer of the server `t` cannot be read: it is nested more than 127 levels deep"
    );
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
    assert_eq!(place.cancellations(), []);
}

#[tokio::test]
async fn missing_program_is_named() {
    let place = Place::not_started("", |config| {
        config.transport = allstop_tools::mcp::McpTransport::Stdio {
            command: "/no/such/program".into(),
            args: Vec::new(),
            env: Vec::new(),
        };
    });
    within(place.servers.start(&place.root)).await.unwrap();
    let state = place.state().to_string();
    assert!(
        state.contains("exit code 127") && state.contains("/no/such/program"),
        "{state}"
    );
}

#[tokio::test]
async fn invalid_messages_are_skipped() {
    let place = Place::new("").await;
    assert_eq!(
        place.call("t__mutter", json!({})).await.unwrap(),
        "muttered"
    );
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
}

#[tokio::test]
async fn server_that_dies_in_a_call_fails_it_and_restarts() {
    let place = Place::new("").await;
    let other = place.start_and_reach("t__wait", json!({})).await;
    let error = place.call("t__exit", json!({})).await.unwrap_err();
    assert!(error.contains("exit code 3: the disk is full"), "{error}");
    assert!(
        error.contains("the outcome of the call is unknown"),
        "{error}"
    );
    let error = other.answer().await.unwrap_err();
    assert!(error.contains("ended during the call"), "{error}");
    // The server's tools stay listed, and their error names the next attempt.
    let state = place.state().to_string();
    if !state.starts_with("ready") {
        let error = place
            .call("t__echo", json!({"text": "x"}))
            .await
            .unwrap_err();
        assert!(error.contains("next attempt in"), "{error}");
    }
    wait_until("it is there again", || place.state().to_string() == "ready").await;
    assert_eq!(
        place.call("t__echo", json!({"text": "on"})).await.unwrap(),
        "on"
    );
    assert_eq!(place.log().matches("started ").count(), 2);
}
