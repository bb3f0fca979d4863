//! Automatic compaction with the thresholds of a client.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

async fn send(client: &mut TestClient, prompt: &str) {
    let message = json!({ "sessionId": "s", "prompt": prompt });
    client.request("session.send", &message).await;
    client.event("session.idle").await;
}

fn count(client: &TestClient, kind: &str) -> usize {
    let is_it = |message: &&Value| message["params"]["event"]["type"] == kind;
    client.seen().iter().filter(is_it).count()
}

/// Runs two turns with these options of the compaction.
async fn run(infinite_sessions: &Value, answers: &[&str]) -> (TestClient, OpenAiServer) {
    let model = OpenAiServer::start(answers.iter().copied().map(ServerAnswer::text));
    let server = TestServer::new("turns: [{replies: [{text: unused}]}]").await;
    let mut client = server.client();
    let options = json!({
        "model": "m",
        "provider": { "type": "openai", "baseUrl": format!("{}/v1", model.url()) },
        "infiniteSessions": infinite_sessions,
    });
    client.create("s", &options).await;
    send(&mut client, "one").await;
    send(&mut client, "two").await;
    (client, model)
}

#[tokio::test]
async fn low_threshold_compacts_before_the_next_turn() {
    let thresholds = json!({ "backgroundCompactionThreshold": 0, "bufferExhaustionThreshold": 1 });
    let (mut client, model) = run(&thresholds, &["First.", "The summary.", "Second."]).await;
    let started = client.event("session.compaction_start").await;
    assert!(
        started["conversationTokens"].as_u64() > Some(0),
        "{started}"
    );
    let complete = client.event("session.compaction_complete").await;
    assert_eq!(complete["success"], true, "{complete}");
    assert_eq!(complete["summaryContent"], "The summary.", "{complete}");
    assert!(complete["compactionTokensUsed"].is_object(), "{complete}");
    for kind in ["session.compaction_start", "session.compaction_complete"] {
        assert_eq!(count(&client, kind), 1, "{kind}");
    }
    assert_eq!(model.seen().requests.len(), 3);
}

#[tokio::test]
async fn disabled_compaction_sends_no_event() {
    let disabled = json!({ "enabled": false, "backgroundCompactionThreshold": 0 });
    let (client, model) = run(&disabled, &["First.", "Second."]).await;
    assert_eq!(count(&client, "session.compaction_start"), 0);
    assert_eq!(model.seen().requests.len(), 2);
}
