//! Limits of the resources that a client can occupy, and the answers when a limit is reached.

use std::time::Duration;

use allstop_jsonrpc::encode_frame;
use serde_json::json;
use tokio::time::timeout;

use crate::support::{SOON, TestServer};

const HELLO: &str = "turns: [{replies: [{text: Hello.}]}]";

/// If a client does not read its answers, the server reads no further requests. When the client reads again, it
/// receives every answer.
#[tokio::test]
async fn unread_answers_are_limited_in_bytes() {
    const PING_BYTES: usize = 256 * 1024;
    // If the server accepted all of these requests, the answers would have 100 MiB in total.
    const PINGS: usize = 400;

    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let ping = json!({ "message": "x".repeat(PING_BYTES) });
    let mut cut = None;
    for sent in 0..PINGS {
        let sending = client.send("ping", &ping);
        if timeout(Duration::from_secs(1), sending).await.is_err() {
            cut = Some(sent);
            break;
        }
    }
    let cut = cut.expect("the server reads on, whatever waits for its client");
    assert!(
        cut * PING_BYTES < 16 * 1024 * 1024,
        "{cut} pings were taken"
    );
    // Other clients are not delayed.
    let mut other = server.client();
    let answer = other.request("ping", &json!({ "message": "y" })).await;
    assert_eq!(answer["message"], "pong: y");
    for id in 1..=cut {
        let answer = client.answer_to(id as u64).await;
        let echo = answer["result"]["message"].as_str().expect("an echo");
        assert!(echo.ends_with('x') && echo.len() > PING_BYTES);
    }
}

/// A client that reads late receives every event, once and in order. The other client is not delayed.
#[tokio::test]
async fn slow_client_gets_every_event_in_order() {
    const CHUNKS: usize = 800;

    let chunk = |number| format!("{number:04} {}", "x".repeat(4_000));
    let chunks: Vec<_> = (0..CHUNKS)
        .map(|number| json!({ "text": chunk(number) }))
        .collect();
    let script = json!({ "turns": [{ "replies": [{ "chunks": chunks }] }] });
    let server = TestServer::new(&script.to_string()).await;
    let (mut quick, mut slow) = (server.client(), server.client());
    quick.create("s", &json!({ "streaming": true })).await;
    let resume = json!({ "sessionId": "s", "streaming": true });
    slow.request("session.resume", &resume).await;
    let message = json!({ "sessionId": "s", "prompt": "tell" });
    let answer = quick.request("session.sendAndWait", &message).await;
    assert_eq!(answer["outcome"], "completed");
    // So far, the slow client has read no event of the turn.
    slow.event("session.idle").await;
    let events: Vec<_> = slow
        .seen()
        .iter()
        .filter(|message| message["method"] == "session.event")
        .map(|message| &message["params"]["event"])
        .collect();
    let mut told = String::new();
    for event in &events {
        assert_ne!(event["type"], "session.warning", "{event}");
        if event["type"] == "assistant.message_delta" {
            told += event["data"]["deltaContent"].as_str().expect("text");
        }
    }
    let expected: String = (0..CHUNKS).map(chunk).collect();
    assert!(
        told == expected,
        "{} of {} bytes",
        told.len(),
        expected.len()
    );
    let mut ids: Vec<_> = events.iter().map(|event| &event["id"]).collect();
    let before = ids.len();
    ids.sort_by_key(ToString::to_string);
    ids.dedup();
    assert_eq!(ids.len(), before, "an event came twice");
}

/// Each of 100,000 concurrent requests is answered once: with its result, or with an error about too many requests.
#[tokio::test]
async fn pending_requests_are_limited() {
    const REQUESTS: usize = 100_000;

    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let mut bytes = Vec::new();
    for id in 0..REQUESTS {
        let ping = json!({ "jsonrpc": "2.0", "id": id, "method": "ping", "params": {} });
        bytes.extend(encode_frame(ping.to_string().as_bytes()));
    }
    let before = resident_bytes();
    let answers = client.flood(&bytes, REQUESTS).await;
    let mut ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert!(ids.iter().copied().eq((0..REQUESTS as u64).map(Some)));
    let refused = answers
        .iter()
        .filter(|answer| answer.get("error").is_some());
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty(), "the limit was not reached");
    assert!(
        refused
            .iter()
            .all(|answer| answer["error"]["code"] == -32000)
    );
    // The answers that this test keeps use most of this memory.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 * 1024 * 1024, "{grown} bytes more");
    let answer = client.request("ping", &json!({ "message": "y" })).await;
    assert_eq!(answer["message"], "pong: y");
}

/// Many concurrent requests ask for long histories. The server prepares the answers one after another.
#[tokio::test]
async fn unread_histories_take_no_memory() {
    const ANSWER_BYTES: usize = 1024 * 1024;
    // If all answers existed at the same time, they would have twice the permitted size.
    const REQUESTS: usize = 200;

    let script = format!(
        "turns: [{{replies: [{{text: {}}}]}}]",
        "x".repeat(ANSWER_BYTES)
    );
    let server = TestServer::new(&script).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message).await;
    assert_eq!(answer["outcome"], "completed");
    let before = resident_bytes();
    let session = json!({ "sessionId": "s" });
    let mut ids = Vec::new();
    for _ in 0..REQUESTS {
        ids.push(client.send("session.getMessages", &session).await);
    }
    // Another connection has answered later requests, so the server has read all requests of the first connection.
    let mut other = server.client();
    for _ in 0..100 {
        let answer = other.request("session.getMetadata", &session).await;
        assert_eq!(answer["session"]["sessionId"], "s");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 * ANSWER_BYTES, "{grown} bytes more");
    for id in ids {
        let answer = client.answer_to(id).await;
        assert!(answer["result"]["events"].is_array(), "{id}");
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("there is /proc");
    let pages = statm.split_whitespace().nth(1);
    pages
        .and_then(|pages| pages.parse::<usize>().ok())
        .expect("a number")
        * 4096
}

#[tokio::test]
async fn message_for_a_full_queue_may_be_sent_again() {
    let server =
        TestServer::new("turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]").await;
    let mut client = server.client();
    let tools = json!([{ "name": "wait", "description": "waits", "parameters": {} }]);
    client.create("s", &json!({ "tools": tools })).await;
    let message = json!({ "sessionId": "s", "prompt": "wait" });
    client.request("session.send", &message).await;
    client.event("external_tool.requested").await;
    let mut taken = 0;
    let refused = loop {
        let answer = client.answer("session.send", &message).await;
        if answer.get("error").is_some() {
            break answer;
        }
        taken += 1;
        assert!(taken < 10_000, "the queue has no limit");
    };
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    let empty = json!({ "sessionId": "s", "prompt": "" });
    let answer = client.answer("session.send", &empty).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // The queued messages are not lost: a stop of the session ends all of them.
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopped = timeout(SOON, client.request("allstop.stop", &stop)).await;
    assert!(stopped.expect("no hang")["receipt"].is_object());
}

/// Answers still arrive after the client has closed its sending side.
#[tokio::test]
async fn answers_arrive_after_the_last_request() {
    const PINGS: u64 = 100;

    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let mut last = 0;
    for _ in 0..PINGS {
        last = client.send("ping", &json!({ "message": "x" })).await;
    }
    client.close_output().await;
    for id in 1..=last {
        assert_eq!(client.answer_to(id).await["result"]["message"], "pong: x");
    }
}

/// The answer to a refused request does not wait for room among the unread events. Otherwise a stop by this client
/// would have no effect until the client reads.
#[tokio::test]
async fn refusals_do_not_wait_for_unread_events() {
    let script = json!({ "turns": [
        { "when": "tell", "replies": [{ "text": "x".repeat(12 * 1024 * 1024) }] },
        { "when": "hang", "replies": [{ "text": "never", "stall": "first_token" }] },
    ] });
    let server = TestServer::new(&script.to_string()).await;
    let (mut deaf, mut other) = (server.client(), server.client());
    deaf.create("s", &json!({ "streaming": true })).await;
    other
        .request("session.resume", &json!({ "sessionId": "s" }))
        .await;
    let message = |prompt: &str| json!({ "sessionId": "s", "prompt": prompt });
    let told = other.request("session.sendAndWait", &message("tell")).await;
    assert_eq!(told["outcome"], "completed");
    let hanging = other.send("session.sendAndWait", &message("hang")).await;
    other.event("assistant.turn_start").await;
    // Together, the unread events of this client exceed the room in the queue.
    for _ in 0..3 {
        deaf.message(&json!({ "jsonrpc": "2.0", "id": {} })).await;
    }
    deaf.send("session.abort", &json!({ "sessionId": "s" }))
        .await;
    let answer = other.answer_to(hanging).await;
    assert_eq!(answer["result"]["outcome"], "aborted", "{answer}");
}
