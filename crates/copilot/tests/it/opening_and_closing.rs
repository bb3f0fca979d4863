//! Sessions that are opened, closed and deleted concurrently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_copilot::ShutdownWork;
use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};

use crate::support::{TestServer, test_options};

const HELLO: &str = "turns: [{replies: [{text: Hello.}]}]";

#[tokio::test]
async fn resume_waits_for_a_close() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let session = json!({ "sessionId": "s" });
    client.create("s", &json!({})).await;
    for _ in 0..20 {
        let detached = client.send("session.detach", &session).await;
        let resumed = client.send("session.resume", &session).await;
        let answer = client.answer_to(detached).await;
        assert_eq!(answer["result"]["success"], true, "{answer}");
        let answer = client.answer_to(resumed).await;
        assert_eq!(answer["result"]["sessionId"], "s", "{answer}");
        let message = json!({ "sessionId": "s", "prompt": "hello" });
        let answer = client.request("session.sendAndWait", &message).await;
        assert_eq!(answer["outcome"], "completed", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_waits_for_the_create() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let session = json!({ "sessionId": "s" });
    for _ in 0..20 {
        let created = client.send("session.create", &session).await;
        let deleted = client.send("session.delete", &session).await;
        assert_eq!(client.answer_to(created).await["result"]["sessionId"], "s");
        let answer = client.answer_to(deleted).await;
        assert_eq!(answer["result"], json!({ "success": true }), "{answer}");
        let answer = client.request("session.getMetadata", &session).await;
        assert_eq!(answer, json!({ "session": null }));
    }
}

/// If two clients leave at the same time, exactly one of them is the last client, which closes the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_leave_close_the_session() {
    let server = TestServer::new(HELLO).await;
    let (mut one, mut two) = (server.client(), server.client());
    let session = json!({ "sessionId": "s" });
    one.create("s", &json!({})).await;
    for _ in 0..20 {
        two.request("session.resume", &session).await;
        let (first, second) = tokio::join!(
            one.request("session.detach", &session),
            two.request("session.detach", &session),
        );
        let receipts = [&first, &second].map(|answer| !answer["receipt"].is_null());
        assert_ne!(receipts[0], receipts[1], "{first} {second}");
        let message = json!({ "sessionId": "s", "prompt": "hello" });
        let answer = one.answer("session.send", &message).await;
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("is not open here"), "{answer}");
        one.request("session.resume", &session).await;
    }
}

#[tokio::test]
async fn client_without_the_session_cannot_stop_its_work() {
    let script = "turns: [{replies: [{calls: [{tool: act, arguments: {}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let (mut one, mut stranger) = (server.client(), server.client());
    one.create("s", &json!({ "tools": [{ "name": "act" }] }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    one.request("session.send", &message).await;
    let request = one.event("external_tool.requested").await;
    let session = json!({ "sessionId": "s" });
    let nothing = json!({ "success": true, "receipt": null });
    for method in ["session.detach", "session.destroy"] {
        assert_eq!(stranger.request(method, &session).await, nothing);
    }
    let answer = json!({
        "sessionId": "s",
        "requestId": request["requestId"],
        "result": "acted",
    });
    one.request("session.tools.handlePendingToolCall", &answer)
        .await;
    let done = one.event("tool.execution_complete").await;
    assert_eq!(done["success"], true, "{done}");
    one.event("session.idle").await;
}

#[tokio::test]
async fn session_ids_that_are_paths_are_refused() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    for id in ["", ".", "../x", "a/b", "agent/1"] {
        for method in [
            "session.create",
            "session.resume",
            "session.delete",
            "session.getMessages",
            "session.detach",
        ] {
            let answer = client.answer(method, &json!({ "sessionId": id })).await;
            assert_eq!(answer["error"]["code"], -32602, "{method} {id:?}: {answer}");
        }
    }
}

/// A stop of the session does not end the session forever. It can be resumed, even by a client that was attached
/// before.
#[tokio::test]
async fn session_that_was_stopped_can_be_resumed() {
    let server = TestServer::new(HELLO).await;
    let (mut one, mut two) = (server.client(), server.client());
    let session = json!({ "sessionId": "s" });
    one.create("s", &json!({})).await;
    two.request("session.resume", &session).await;
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    for _ in 0..3 {
        let stop = json!({ "sessionId": "s", "extent": "session" });
        let stopped = one.request("allstop.stop", &stop).await;
        assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
        let created = one.answer("session.create", &session).await;
        let advice = created["error"]["message"].as_str().expect("an error");
        assert!(advice.contains("`session.resume` continues it"), "{advice}");
        one.request("session.resume", &session).await;
        let answer = one.request("session.sendAndWait", &message).await;
        assert_eq!(answer["outcome"], "completed", "{answer}");
        two.request("session.resume", &session).await;
        two.request("session.sendAndWait", &message).await;
    }
}

/// A client disconnects while it creates a session. Then either a complete session exists, or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_goes_while_it_creates_leaves_nothing_half_done() {
    let server = TestServer::with(HELLO, Duration::ZERO, PermissionAnswer::Unanswered).await;
    let mut other = server.client();
    for number in 0..50 {
        let id = format!("s{number}");
        let session = json!({ "sessionId": id });
        let mut client = server.client();
        client.send("session.create", &session).await;
        client.end().await;
        let created = other.answer("session.create", &session).await;
        let text = created["error"]["message"].as_str().unwrap_or("exists");
        assert!(text.contains("exists"), "{created}");
        // Either the session exists without a client, or the other client has just created it.
        other.request("session.resume", &session).await;
        let message = json!({ "sessionId": id, "prompt": "hello" });
        let answer = other.request("session.sendAndWait", &message).await;
        assert_eq!(answer["outcome"], "completed", "{answer}");
    }
}

const ASKS: &str =
    "turns: [{replies: [{calls: [{tool: bash, arguments: {command: echo hi}}]}, {text: Done.}]}]";

/// An open permission question and its turn wait until a client returns.
#[tokio::test]
async fn question_outlives_the_client_that_vanished() {
    let unattended = Duration::from_mins(1);
    let server = TestServer::with(ASKS, unattended, PermissionAnswer::Unanswered).await;
    let (mut one, stranger) = (server.client(), server.client());
    one.create("s", &json!({ "requestPermission": true })).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    one.request("session.send", &message).await;
    one.event("permission.requested").await;
    one.end().await;
    // The disconnect of a client that was never attached to the session has no effect.
    stranger.end().await;
    let mut stranger = server.client();
    let session = json!({ "sessionId": "s" });
    stranger.request("session.detach", &session).await;
    let mut two = server.client();
    let resume = json!({ "sessionId": "s", "requestPermission": true });
    two.request("session.resume", &resume).await;
    let asked = two.event("permission.requested").await;
    let answer = json!({
        "sessionId": "s",
        "requestId": asked["requestId"],
        "result": { "kind": "approve-once" },
    });
    let method = "session.permissions.handlePendingPermissionRequest";
    assert_eq!(two.request(method, &answer).await["success"], true);
    let done = two.event("tool.execution_complete").await;
    assert_eq!(done["success"], true, "{done}");
}

/// A client that does not continue the pending work gets neither the open questions nor the open requests for tools.
#[tokio::test]
async fn resume_without_the_pending_work_gets_no_requests() {
    let calls_tool = "turns: [{when: next, replies: [{text: Hello.}]}, \
                      {replies: [{calls: [{tool: act, arguments: {}}]}, {text: Never.}]}]";
    let asks = "turns: [{when: next, replies: [{text: Hello.}]}, \
                {replies: [{calls: [{tool: bash, arguments: {command: echo hi}}]}, {text: Never.}]}]";
    for (script, kind) in [
        (calls_tool, "external_tool.requested"),
        (asks, "permission.requested"),
    ] {
        let server = TestServer::new(script).await;
        let mut one = server.client();
        let tools = json!({ "tools": [{ "name": "act", "skipPermission": true }], "requestPermission": true });
        one.create("s", &tools).await;
        let message = json!({ "sessionId": "s", "prompt": "go" });
        one.request("session.send", &message).await;
        let request = one.event(kind).await;
        one.end().await;
        let mut two = server.client();
        let mut resume = tools;
        resume["sessionId"] = "s".into();
        resume["continuePendingWork"] = false.into();
        two.request("session.resume", &resume).await;
        let late =
            json!({ "sessionId": "s", "requestId": request["requestId"], "result": "acted" });
        let answered = two
            .request("session.tools.handlePendingToolCall", &late)
            .await;
        assert_eq!(answered["success"], false);
        let next = json!({ "sessionId": "s", "prompt": "next" });
        let answer = two.request("session.sendAndWait", &next).await;
        assert_eq!(answer["outcome"], "completed", "{answer}");
        let is_request = |message: &&Value| message["params"]["event"]["type"] == kind;
        assert_eq!(two.seen().iter().find(is_request), None);
        let history = two
            .request("session.getMessages", &json!({ "sessionId": "s" }))
            .await;
        let mut events = history["events"].as_array().expect("events").iter();
        let resumed = events.find(|event| event["type"] == "session.resume");
        assert_eq!(
            resumed.expect("a resume")["data"]["sessionWasActive"],
            false
        );
    }
}

/// A restarted program resumes before the server has noticed the end of the old connection.
#[tokio::test]
async fn resume_without_the_pending_work_waits_for_the_end_of_the_old_connection() {
    let script = "turns: [{replies: [{calls: [{tool: act, arguments: {}}]}, {text: Never.}]}]";
    let server = TestServer::new(script).await;
    let mut one = server.client();
    let tools = json!({ "tools": [{ "name": "act" }] });
    one.create("s", &tools).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    one.request("session.send", &message).await;
    one.event("external_tool.requested").await;
    let mut two = server.client();
    let mut resume = tools;
    resume["sessionId"] = "s".into();
    resume["continuePendingWork"] = false.into();
    let resumed = two.send("session.resume", &resume).await;
    // Requests begin in their order: the resume has begun.
    two.request("ping", &json!({})).await;
    one.end().await;
    two.answer_to(resumed).await;
    let resumed = two.event("session.resume").await;
    assert_eq!(resumed["sessionWasActive"], false);
    let is_request =
        |message: &&Value| message["params"]["event"]["type"] == "external_tool.requested";
    assert_eq!(two.seen().iter().find(is_request), None);
}

/// A client that resumes a session to which it is already attached keeps its event feed. No event is duplicated or
/// lost.
#[tokio::test]
async fn second_resume_of_a_client_changes_nothing() {
    let script = "turns: [{replies: [{calls: [{tool: act, arguments: {}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    let session = json!({ "sessionId": "s", "tools": [{ "name": "act" }] });
    client.request("session.create", &session).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let request = client.event("external_tool.requested").await;
    client.request("session.resume", &session).await;
    let answer = json!({
        "sessionId": "s",
        "requestId": request["requestId"],
        "result": "acted",
    });
    client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    client.event("session.idle").await;
    for (kind, expected) in [
        ("external_tool.requested", 1),
        ("external_tool.completed", 1),
        ("tool.execution_start", 1),
        ("tool.execution_complete", 1),
        ("assistant.turn_start", 2),
        ("assistant.turn_end", 2),
    ] {
        let of_kind = client.seen().iter();
        let of_kind = of_kind.filter(|message| message["params"]["event"]["type"] == kind);
        assert_eq!(of_kind.count(), expected, "{kind}");
    }
}

#[tokio::test]
async fn work_before_the_shutdown_precedes_its_answer() {
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let work = ShutdownWork::new(move || done.store(true, Ordering::SeqCst));
    let options = test_options().before_shutdown(work);
    let server = TestServer::with_options("", HELLO, options).await;
    let mut client = server.client();
    client.request("runtime.shutdown", &json!({})).await;
    assert!(is_done.load(Ordering::SeqCst));
    server.stop().await;
}
