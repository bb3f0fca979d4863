//! Questions to the model outside the conversation.

use std::time::Duration;

use allstop_jsonrpc::encode_frame;
use serde_json::json;
use tokio::time::timeout;

use crate::support::TestServer;

const SCRIPT: &str = r#"
turns:
  - when: "colour"
    replies: [{text: Blue.}]
  - when: "hang"
    replies: [{text: never, stall: mid_stream}]
  - when: "hello"
    replies: [{text: Hi.}]
"#;

#[tokio::test]
async fn side_question_leaves_the_conversation_unchanged() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    client.request("session.sendAndWait", &message).await;
    let of = json!({ "sessionId": "s" });
    let before = client.request("session.getMessages", &of).await;
    let question = json!({ "sessionId": "s", "question": "which colour?" });
    let answer = client.request("session.ui.ephemeralQuery", &question).await;
    assert_eq!(answer, json!({ "answer": "Blue." }));
    let started = client.event("ui.ephemeral_query").await;
    let completed = client.event("ui.ephemeral_query").await;
    assert_eq!(
        (&started["phase"], &completed["answer"]),
        (&json!("started"), &json!("Blue."))
    );
    let after = client.request("session.getMessages", &of).await;
    assert_eq!(before, after);
}

/// Regression: an abort in the same write came before the question, which then waited for the model without end.
#[tokio::test]
async fn an_abort_covers_the_question_of_an_earlier_request() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let requests = [
        (
            "session.ui.ephemeralQuery",
            json!({ "sessionId": "s", "question": "hang" }),
        ),
        ("session.abort", json!({ "sessionId": "s" })),
    ];
    let mut write = Vec::new();
    for (id, (method, params)) in (1_000..).zip(&requests) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        write.extend(encode_frame(request.to_string().as_bytes()));
    }
    assert!(client.write(&write).await);
    let aborted = client.answer_to(1_001).await;
    assert_eq!(aborted["result"]["receipt"]["quiet"], true, "{aborted}");
    assert!(client.answer_to(1_000).await["error"].is_object());
}

#[tokio::test]
async fn an_abort_stops_a_side_question_and_lists_its_model_call() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let question = json!({ "sessionId": "s", "question": "hang" });
    let id = client.send("session.ui.ephemeralQuery", &question).await;
    client.event("ui.ephemeral_query").await;
    let of = json!({ "sessionId": "s" });
    // The model call begins after the session was opened.
    let receipt = loop {
        let preview = client.request("allstop.preview", &of).await;
        let items = preview["receipt"]["items"].as_array().expect("items");
        if items.iter().any(|item| item["kind"] == "model_call") {
            // Regression: the answer waited a second for the end of a turn, although no turn ran.
            let abort = client.request("session.abort", &of);
            let aborted = timeout(Duration::from_millis(900), abort).await;
            break aborted.expect("an answer in time")["receipt"].take();
        }
    };
    let items = receipt["items"].as_array().expect("items");
    let call = items.iter().find(|item| item["kind"] == "model_call");
    assert_eq!(call.expect("the call")["state"], "stopped", "{receipt}");
    assert!(client.answer_to(id).await["error"].is_object());
    assert_eq!(client.event("ui.ephemeral_query").await["phase"], "aborted");
}
