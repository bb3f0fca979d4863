//! A resume of a session that is open: an idle session takes other settings, and a working session refuses them.

use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};
use std::time::Duration;

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: Hello.}]}]";

fn settings() -> Value {
    json!({
        "model": "m",
        "provider": { "type": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k1" },
        "systemMessage": { "mode": "append", "content": "Be brief." },
        "availableTools": ["view", "custom:*"],
        "excludedTools": ["bash"],
        "workingDirectory": "/tmp",
    })
}

/// Resumes the session with these settings. Returns the message of the error, if there is one.
async fn resume(client: &mut TestClient, mut settings: Value) -> Option<String> {
    settings["sessionId"] = "s".into();
    let answer = client.answer("session.resume", &settings).await;
    let message = answer["error"]["message"].as_str();
    message.map(str::to_owned)
}

#[tokio::test]
async fn idle_session_takes_the_settings_of_its_resume() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &settings()).await;
    let mut other = server.client();
    assert_eq!(resume(&mut other, json!({})).await, None);
    let changed = json!({ "model": "another", "provider": settings()["provider"] });
    assert_eq!(resume(&mut other, changed).await, None);
    let session = json!({ "sessionId": "s" });
    let model = client.request("session.model.getCurrent", &session).await;
    assert_eq!(model["modelId"], "another");
    // The first client is still attached: it receives the events of the resumed session.
    client
        .request("session.send", &json!({ "sessionId": "s", "prompt": "hi" }))
        .await;
    client.event("user.message").await;
    other.event("user.message").await;
}

#[tokio::test]
async fn working_session_refuses_other_settings_by_name() {
    let script =
        "turns: [{replies: [{calls: [{id: c, tool: ask, arguments: {}}]}, {text: Done.}]}]";
    let server =
        TestServer::with(script, Duration::from_mins(1), PermissionAnswer::Unanswered).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "ask" }] }))
        .await;
    client
        .request("session.send", &json!({ "sessionId": "s", "prompt": "hi" }))
        .await;
    client.event("external_tool.requested").await;
    let mut other = server.client();
    for name in [
        "provider",
        "systemMessage",
        "availableTools",
        "excludedTools",
        "workingDirectory",
    ] {
        let mut one = json!({ "model": "m" });
        one[name] = settings()[name].take();
        let refused = resume(&mut other, one).await.expect(name);
        assert!(
            refused.contains('`') && !refused.contains("k1"),
            "{refused}"
        );
    }
    // A refused client is not attached: it does not count as a client of the session.
    let mut kinds = other.seen().iter();
    assert!(kinds.all(|message| message["method"] != "session.event"));
    // These request nothing else than the session has.
    let nothing = json!({ "systemMessage": { "mode": "append" }, "excludedTools": [] });
    assert_eq!(resume(&mut other, nothing).await, None);
}

#[tokio::test]
async fn same_or_no_settings_are_accepted() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &settings()).await;
    let mut other = server.client();
    for same in [settings(), json!({}), json!({ "model": "m" })] {
        // Clients that the resume names differently: null is no setting.
        let mut nulls = same.clone();
        nulls["reasoningEffort"] = Value::Null;
        for settings in [same, nulls] {
            assert_eq!(resume(&mut client, settings.clone()).await, None);
            assert_eq!(resume(&mut other, settings).await, None);
        }
    }
}

#[tokio::test]
async fn closed_session_takes_the_settings_of_its_resume() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &settings()).await;
    let stop = json!({ "sessionId": "s", "extent": "session" });
    client.request("allstop.stop", &stop).await;
    let mut changed = settings();
    changed["model"] = "another".into();
    assert_eq!(resume(&mut client, changed).await, None);
    let session = json!({ "sessionId": "s" });
    let model = client.request("session.model.getCurrent", &session).await;
    assert_eq!(model["modelId"], "another");
}
