//! Sections of the system prompt that a client changes.

use serde_json::{Value, json};

use crate::carried_requests::{answered, provider};
use crate::support::{TestClient, TestServer};

/// The sessions of these tests use the provider of their client, never this script.
const SCRIPT: &str = "turns: [{replies: [{text: Not used.}]}]";

fn settings(sections: &Value) -> Value {
    let mut settings = provider("completions");
    settings["sessionId"] = "s".into();
    settings["systemMessage"] =
        json!({ "mode": "customize", "content": "At the end.", "sections": sections });
    settings
}

/// Returns the system prompt of the first request to the model.
async fn prompt_of(client: &mut TestClient) -> String {
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    client.request("session.send", &message).await;
    answered(client, "llmInference.httpRequestStart", &json!({})).await;
    let chunk = answered(client, "llmInference.httpRequestChunk", &json!({})).await;
    let body = chunk["data"].as_str().expect("a text");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["messages"][0]["role"], "system", "{body}");
    let prompt = body["messages"][0]["content"].as_str();
    prompt.expect("a text").to_owned()
}

#[tokio::test]
async fn client_changes_sections() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    let sections = json!({
        "identity": { "action": "transform" },
        "tone": { "action": "replace", "content": "Rhyme." },
        "safety": { "action": "remove" },
        "last_instructions": { "action": "append", "content": "Really." },
    });
    let creating = client.send("session.create", &settings(&sections)).await;
    let content = "You are a gardener.";
    let result = json!({ "sections": { "identity": { "content": content } } });
    let asked = answered(&mut client, "systemMessage.transform", &result).await;
    assert_eq!(asked["sessionId"], "s");
    let before = asked["sections"]["identity"]["content"].as_str();
    assert!(before.is_some_and(|text| text.starts_with("You are")));
    assert_eq!(
        asked["sections"].as_object().map(serde_json::Map::len),
        Some(1)
    );
    client.answer_to(creating).await;
    let prompt = prompt_of(&mut client).await;
    assert!(
        prompt.starts_with("You are a gardener.\n\nRhyme.\n\nRules:"),
        "{prompt}"
    );
    assert!(!prompt.contains("secrets"), "{prompt}");
    assert!(prompt.ends_with("At the end.\n\nReally."), "{prompt}");
}

/// A client that refuses the request gets a session with the unchanged section, and a warning.
#[tokio::test]
async fn failed_transformation_is_reported() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    let sections = json!({ "tone": { "action": "transform" } });
    let creating = client.send("session.create", &settings(&sections)).await;
    let method = "systemMessage.transform";
    let request = client
        .take(method, |message| message["method"] == method)
        .await;
    let error = json!({ "code": -32000, "message": "no such session" });
    let refusal = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error });
    client.message(&refusal).await;
    client.answer_to(creating).await;
    let warning = client.event("session.warning").await;
    let text = warning["message"].as_str().unwrap_or_default();
    assert!(text.contains("no such session"), "{warning}");
    let before = request["params"]["sections"]["tone"]["content"].as_str();
    let prompt = prompt_of(&mut client).await;
    assert!(prompt.contains(before.expect("a text")), "{prompt}");
}
