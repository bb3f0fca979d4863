//! Servers that exit during a call.

use serde_json::json;

use crate::support::{Place, only_item, wait_until};

/// True if the process with the id at the end of this text runs. In a container, ended processes may stay as zombies.
fn runs(text: &str) -> bool {
    let (_, id) = text.rsplit_once("left ").expect("the id of the process");
    let id: String = id.chars().take_while(char::is_ascii_digit).collect();
    let status = std::fs::read_to_string(format!("/proc/{id}/status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// A process that the server has left keeps its standard output open.
#[tokio::test]
async fn call_ends_when_its_server_exits_and_leaves_a_process() {
    let place = Place::new("").await;
    let error = place.call("t__exit", json!({"leave": true})).await;
    let error = error.unwrap_err();
    assert!(error.contains("ended during the call"), "{error}");
    assert!(error.contains("exit code 3"), "{error}");
    assert!(!runs(&error), "the process is gone: {error}");
    wait_until("it is there again", || place.state().to_string() == "ready").await;
}

#[tokio::test]
async fn messages_before_the_exit_are_read() {
    let place = Place::new("").await;
    // The answer is larger than a read, and the server exits directly after it.
    let answer = place.call("t__large", json!({"leave": true})).await;
    assert!(answer.unwrap().starts_with("large large"));
}

#[tokio::test]
async fn exit_after_a_cancellation_is_a_verified_end() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "exit"}))
        .await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "owner_died", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    assert_eq!(item["note"], "its server exited by itself", "{item}");
    assert!(receipt.quiet());
}

#[tokio::test]
async fn receipt_reports_the_signal_for_a_process_that_the_server_left() {
    let place = Place::new("").await;
    let call = place
        .start_and_reach("t__wait", json!({"on_cancel": "exit", "leave": true}))
        .await;
    let item = only_item(&*call.stop().await);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "sigterm", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    let note = "its server exited, and processes that it had started needed SIGTERM";
    assert_eq!(item["note"], note, "{item}");
    assert!(!runs(&call.answer().await.unwrap_err()));
}

#[tokio::test]
async fn exit_after_the_cancellation_of_a_task_is_a_verified_end() {
    let place = Place::new("").await;
    let call = place.start("t__research", json!({"end": "never", "on_cancel": "exit"}));
    wait_until("the task is followed", || place.count("tasks/get") > 0).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(item["state"], "stopped", "{item}");
    assert_eq!(item["how"], "owner_died", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    assert!(receipt.quiet());
}
