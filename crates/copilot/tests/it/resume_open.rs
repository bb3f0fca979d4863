//! A resume of a session that is open: its settings do not change, so a request for other settings is refused.

use serde_json::{Value, json};

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
async fn other_settings_are_refused_by_name() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &settings()).await;
    let mut other = server.client();
    let provider =
        |key: &str, url: &str| json!({ "type": "openai", "baseUrl": url, "apiKey": key });
    for (name, value) in [
        ("model", json!("another")),
        ("provider", provider("k2", "http://127.0.0.1:9/v1")),
        ("provider", provider("k1", "http://127.0.0.1:10/v1")),
        ("systemMessage", json!({ "content": "Be verbose." })),
        (
            "systemMessage",
            json!({ "mode": "replace", "content": "Be brief." }),
        ),
        ("availableTools", json!(["view"])),
        ("availableTools", json!([])),
        ("excludedTools", json!([])),
        ("workingDirectory", json!("/")),
    ] {
        let mut changed = settings();
        changed[name] = value;
        for client in [&mut client, &mut other] {
            let refused = resume(client, changed.clone()).await;
            let refused = refused.unwrap_or_else(|| panic!("{name}: not refused: {changed}"));
            assert!(refused.contains(&format!("`{name}`")), "{refused}");
            assert!(refused.contains("allstop.stop"), "the remedy: {refused}");
            assert!(!refused.contains("k1") && !refused.contains("k2"));
        }
    }
    // A refused client is not attached: it does not count as a client of the session.
    let mut kinds = other.seen().iter();
    assert!(kinds.all(|message| message.get("method").is_none()));
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

/// The server's own choices count as the settings of a session whose client has chosen nothing.
#[tokio::test]
async fn session_with_the_servers_settings_refuses_others() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    for name in [
        "provider",
        "systemMessage",
        "availableTools",
        "excludedTools",
        "workingDirectory",
    ] {
        let mut one = json!({ "model": "m" });
        one[name] = settings()[name].take();
        let refused = resume(&mut client, one).await.expect(name);
        assert!(refused.contains('`'), "{refused}");
    }
    // These request nothing else than the session has.
    let nothing = json!({ "systemMessage": { "mode": "append" }, "excludedTools": [] });
    assert_eq!(resume(&mut client, nothing).await, None);
}
