//! Permission questions that a client gets again when it resumes a session, and that its handler answers without a user.

use std::time::{Duration, Instant};

use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{calls: [{id: c, tool: bash, arguments: {command: 'true'}}]}, {text: Done.}]}]";

/// Text of the call for the model if no user is available.
const NO_USER: &str = "Permission denied and could not request permission from user";

/// Starts a turn with a question, which a first client leaves open. Returns the id of the question.
async fn ask(client: &mut TestClient) -> Value {
    client
        .create("s", &json!({ "requestPermission": true }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "run it" });
    client.request("session.send", &message).await;
    client.event("permission.requested").await["requestId"].take()
}

/// Resumes the session with a handler of permission questions. Returns the id of the repeated question.
async fn resume(client: &mut TestClient) -> Value {
    let resume =
        json!({ "sessionId": "s", "requestPermission": true, "continuePendingWork": true });
    client.request("session.resume", &resume).await;
    client.event("permission.requested").await["requestId"].take()
}

async fn answer(client: &mut TestClient, question: &Value, kind: &str) -> Value {
    let answer = json!({ "sessionId": "s", "requestId": question, "result": { "kind": kind } });
    let method = "session.permissions.handlePendingPermissionRequest";
    client.request(method, &answer).await["success"].take()
}

async fn server(unattended_max: Duration) -> TestServer {
    TestServer::with(SCRIPT, unattended_max, PermissionAnswer::Unanswered).await
}

#[tokio::test]
async fn repeated_question_without_a_user_waits_for_an_answer() {
    let server = server(Duration::from_mins(1)).await;
    let mut first = server.client();
    let asked = ask(&mut first).await;
    first.end().await;
    let mut second = server.client();
    assert_eq!(resume(&mut second).await, asked);
    // The SDK sends the answer of the handler, and the program then answers itself.
    assert_eq!(
        answer(&mut second, &asked, "user-not-available").await,
        true
    );
    assert_eq!(answer(&mut second, &asked, "approve-once").await, true);
    let end = second.event("tool.execution_complete").await;
    assert_eq!(end["success"], true, "{end}");
}

#[tokio::test]
async fn repeated_question_without_a_user_ends_after_a_time() {
    let server = server(Duration::from_millis(50)).await;
    let mut first = server.client();
    let asked = ask(&mut first).await;
    let mut second = server.client();
    resume(&mut second).await;
    answer(&mut second, &asked, "user-not-available").await;
    // The first client may still answer, so the question waits for it.
    first.end().await;
    let end = second.event("tool.execution_complete").await;
    let message = end["error"]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with(NO_USER), "{message}");
}

#[tokio::test]
async fn user_of_another_client_answers_after_a_client_without_a_user() {
    let server = server(Duration::from_millis(1)).await;
    let mut first = server.client();
    let asked = ask(&mut first).await;
    let mut second = server.client();
    resume(&mut second).await;
    answer(&mut second, &asked, "user-not-available").await;
    // The question stays open for many times its time.
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(50) {
        let open = json!({ "sessionId": "s" });
        let open = second
            .request("session.permissions.pendingRequests", &open)
            .await;
        assert_eq!(open["items"][0]["requestId"], asked, "{open}");
    }
    assert_eq!(answer(&mut first, &asked, "approve-once").await, true);
    let end = first.event("tool.execution_complete").await;
    assert_eq!(end["success"], true, "{end}");
}

#[tokio::test]
async fn stop_ends_a_repeated_question_without_a_user() {
    let server = server(Duration::from_mins(1)).await;
    let mut first = server.client();
    let asked = ask(&mut first).await;
    first.end().await;
    let mut second = server.client();
    resume(&mut second).await;
    answer(&mut second, &asked, "user-not-available").await;
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopped = second.request("allstop.stop", &stop).await;
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
    assert_eq!(answer(&mut second, &asked, "approve-once").await, false);
}
