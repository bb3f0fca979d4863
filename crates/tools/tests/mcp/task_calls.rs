//! Calls of tools that must be called as a task, since revision 2025-11-25.

use std::time::Duration;

use allstop_tools::FormAnswer;
use allstop_tools::mcp::OnIgnoredCancel;
use serde_json::{Value, json};

use crate::stateless::{Person, link};
use crate::support::{Place, Running, only_item, wait_until};

const TOOL: &str = "t__research";

/// Starts a call, and waits until its task is followed.
async fn followed(place: &Place, arguments: Value) -> Running {
    let call = place.start(TOOL, arguments);
    wait_until("the task is followed", || place.count("tasks/get") > 0).await;
    call
}

#[tokio::test]
async fn tool_that_requires_a_task_returns_the_result_of_its_task() {
    let limit = Duration::from_mins(10);
    let place = Place::with("", |config| config.call_timeout = Some(limit)).await;
    assert_eq!(place.call(TOOL, json!({})).await.unwrap(), "found");
    let log = place.log();
    let calls = log.lines().filter(|line| line.contains("\"tools/call\""));
    let calls: Vec<Value> = calls
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0]["params"]["task"], json!({"ttl": 600_000}));
    assert!(calls[0]["params"]["_meta"]["progressToken"].is_number());
    assert_eq!(place.count("tasks/result"), 1);
    assert_eq!(place.count("tasks/cancel"), 0);
    assert_eq!(
        place.call("t__echo", json!({"text": "a"})).await.unwrap(),
        "a"
    );
}

#[tokio::test]
async fn failed_task_is_a_failed_call() {
    let place = Place::new("").await;
    for (end, expected) in [
        (
            "fail",
            "the server `t` answered with an error: no such library",
        ),
        ("tool_error", "the index is broken"),
    ] {
        let failed = place.call(TOOL, json!({"end": end})).await;
        assert_eq!(failed.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn stop_is_verified_by_the_status_of_the_task() {
    for (reaction, state) in [("obey", "stopped"), ("finish", "finished")] {
        let place = Place::new("").await;
        let call = followed(&place, json!({"end": "never", "on_cancel": reaction})).await;
        let receipt = call.stop().await;
        let item = only_item(&receipt);
        assert_eq!(item["state"], state, "{item}");
        assert!(receipt.quiet(), "{item}");
        if state == "stopped" {
            assert_eq!(item["how"], "remote_confirmed", "{item}");
            let note = "the server reports the status `cancelled` of its task";
            assert_eq!(item["note"], note, "{item}");
        }
        assert_eq!(place.count("tasks/cancel"), 1);
        assert_eq!(place.cancellations(), []);
    }
}

#[tokio::test]
async fn task_that_ignores_its_stop_is_unreachable() {
    for reaction in ["ignore", "silent", "confuse"] {
        let place = Place::new("").await;
        let call = followed(&place, json!({"end": "never", "on_cancel": reaction})).await;
        let receipt = call.stop().await;
        let item = only_item(&receipt);
        assert_eq!(item["state"], "unreachable", "{item}");
        assert!(!receipt.quiet());
        let note = item["note"].as_str().unwrap();
        assert!(
            note.ends_with("has not ended its task after tasks/cancel"),
            "{note}"
        );
        assert_eq!(place.count("tasks/cancel"), 1);
        assert_eq!(
            place.call("t__echo", json!({"text": "a"})).await.unwrap(),
            "a"
        );
    }
}

#[tokio::test]
async fn task_that_ignores_its_stop_ends_with_its_server() {
    let end = OnIgnoredCancel::EndServer;
    let place = Place::with("", |config| config.on_ignored_cancel = end).await;
    let call = followed(&place, json!({"end": "never", "on_cancel": "ignore"})).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    assert!(receipt.quiet());
}

/// The stop arrives before the server has created the task, so the client learns the id of the task after the stop.
#[tokio::test]
async fn task_that_is_created_after_the_stop_is_cancelled() {
    let place = Place::new("").await;
    let arguments = json!({"end": "never", "created_after_ms": 100});
    let call = place.start_and_reach(TOOL, arguments).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "remote_confirmed", "{item}");
    assert_eq!(place.count("tasks/cancel"), 1);
}

#[tokio::test]
async fn outcome_of_a_task_is_unknown_if_its_server_dies() {
    let place = Place::new("").await;
    let call = place.start(TOOL, json!({"end": "exit"}));
    let error = call.answer().await.unwrap_err();
    assert!(
        error.contains("the server `t` ended during the call"),
        "{error}"
    );
    assert!(
        error.ends_with("the outcome of the call is unknown"),
        "{error}"
    );
}

#[tokio::test]
async fn question_of_a_task_reaches_the_person() {
    let place = Place::new("").await;
    let values = json!({"name": "Ada"}).as_object().unwrap().clone();
    let person = Person::with(Some(FormAnswer::Accept(values)));
    // Two calls are open, so only the id of the task assigns the question.
    let other = place.start_and_reach("t__wait", json!({})).await;
    let call = place.start_with(TOOL, json!({"end": "ask"}), link(&person));
    let answered: Value = serde_json::from_str(&call.answer().await.unwrap()).unwrap();
    assert_eq!(answered["content"], json!({"name": "Ada"}));
    drop(other.stop().await);
}
