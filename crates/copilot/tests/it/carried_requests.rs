//! Requests to models that go through a client, and tokens that a client returns.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

/// The sessions of these tests use the provider of their client, never this script.
const SCRIPT: &str = "turns: [{replies: [{text: Not used.}]}]";

pub(crate) fn provider(wire: &str) -> Value {
    json!({
        "model": "m",
        "provider": {
            "type": "openai", "wireApi": wire, "baseUrl": "https://byok.invalid/v1", "apiKey": "secret",
        },
    })
}

/// Waits for a request of the server, and answers it.
pub(crate) async fn answered(client: &mut TestClient, method: &str, result: &Value) -> Value {
    let request = client
        .take(method, |message| message["method"] == method)
        .await;
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    client.message(&answer).await;
    request["params"].clone()
}

/// Creates a session whose requests the client carries, and sends a message. Returns the first request and its body.
async fn carried(client: &mut TestClient, options: &Value) -> (Value, Value) {
    client.request("llmInference.setProvider", &json!({})).await;
    client.create("s", options).await;
    let message = json!({
        "sessionId": "s", "prompt": "hello", "requestHeaders": { "X-Turn": "one" },
    });
    client.request("session.send", &message).await;
    let start = answered(client, "llmInference.httpRequestStart", &json!({})).await;
    let chunk = answered(client, "llmInference.httpRequestChunk", &json!({})).await;
    assert_eq!(chunk["end"], true, "{chunk}");
    let body = chunk["data"].as_str().expect("a text");
    (start, serde_json::from_str(body).expect("JSON"))
}

async fn respond(client: &mut TestClient, request: &Value, status: u16, events: &[Value]) {
    let id = &request["requestId"];
    let start = json!({ "requestId": id, "status": status, "headers": {} });
    let accepted = client
        .request("llmInference.httpResponseStart", &start)
        .await;
    assert_eq!(accepted["accepted"], true);
    for event in events {
        let chunk = json!({ "requestId": id, "data": format!("data: {event}\n\n") });
        client
            .request("llmInference.httpResponseChunk", &chunk)
            .await;
    }
    let end = json!({ "requestId": id, "data": "", "end": true });
    client.request("llmInference.httpResponseChunk", &end).await;
}

#[tokio::test]
async fn client_carries_a_request_and_its_answer() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let (start, body) = carried(&mut client, &provider("completions")).await;
    assert_eq!(start["url"], "https://byok.invalid/v1/chat/completions");
    assert_eq!(start["headers"]["authorization"], json!(["Bearer secret"]));
    assert_eq!(start["headers"]["x-turn"], json!(["one"]));
    assert_eq!(
        (&start["sessionId"], &start["agentId"]),
        (&json!("s"), &json!("s"))
    );
    assert_eq!(body["stream"], true, "{body}");
    let event = json!({ "choices": [{ "delta": { "content": "Hi." }, "finish_reason": "stop" }] });
    respond(&mut client, &start, 200, &[event]).await;
    assert_eq!(client.event("assistant.message").await["content"], "Hi.");
}

#[tokio::test]
async fn responses_api_of_a_provider_is_used() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let (start, body) = carried(&mut client, &provider("responses")).await;
    assert_eq!(start["url"], "https://byok.invalid/v1/responses");
    assert!(body["input"].is_array(), "{body}");
    let events = [
        json!({ "type": "response.output_text.delta", "delta": "Hi." }),
        json!({ "type": "response.completed", "response": { "status": "completed", "output": [] } }),
    ];
    respond(&mut client, &start, 200, &events).await;
    assert_eq!(client.event("assistant.message").await["content"], "Hi.");
}

/// The abort cancels the request at the client. The receipt claims the end only if the client has confirmed it.
#[tokio::test]
async fn abort_cancels_the_request_at_the_client() {
    for confirms in [true, false] {
        let server = TestServer::new(SCRIPT).await;
        let mut client = server.client();
        let (start, _body) = carried(&mut client, &provider("completions")).await;
        let aborting = client
            .send("session.abort", &json!({ "sessionId": "s" }))
            .await;
        let cancel = answered(&mut client, "llmInference.httpRequestChunk", &json!({})).await;
        assert_eq!(cancel["requestId"], start["requestId"]);
        assert_eq!(cancel["cancel"], true, "{cancel}");
        if confirms {
            respond(&mut client, &start, 499, &[]).await;
        }
        let aborted = client.answer_to(aborting).await;
        let receipt = &aborted["result"]["receipt"];
        let items = receipt["items"].as_array().expect("items");
        let call = items.iter().find(|item| item["kind"] == "model_call");
        let state = call.map(|call| call["state"].clone());
        let expected = if confirms { "stopped" } else { "unreachable" };
        assert_eq!(state, Some(json!(expected)), "{receipt}");
        assert_eq!(receipt["quiet"], confirms, "{receipt}");
    }
}

/// A client that disconnects during an abort may still send the request, so the receipt does not claim its end.
#[tokio::test]
async fn disconnect_of_the_carrier_confirms_nothing() {
    let server = TestServer::new(SCRIPT).await;
    let mut carrier = server.client();
    carried(&mut carrier, &provider("completions")).await;
    let mut other = server.client();
    let session = json!({ "sessionId": "s" });
    other.request("session.resume", &session).await;
    let aborting = other.send("session.abort", &session).await;
    carrier
        .take("a cancellation", |message| {
            message["params"]["cancel"] == true
        })
        .await;
    drop(carrier.end().await);
    let aborted = other.answer_to(aborting).await;
    let receipt = &aborted["result"]["receipt"];
    let items = receipt["items"].as_array().expect("items");
    let call = items.iter().find(|item| item["kind"] == "model_call");
    let state = call.map(|call| call["state"].clone());
    assert_eq!(state, Some(json!("unreachable")), "{receipt}");
    assert_eq!(receipt["quiet"], false, "{receipt}");
}

/// The text of an exception in the handler of a client reaches the user.
#[tokio::test]
async fn failed_request_is_a_failed_turn() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let (start, _body) = carried(&mut client, &provider("completions")).await;
    let head = json!({ "requestId": start["requestId"], "status": 400, "headers": {} });
    client
        .request("llmInference.httpResponseStart", &head)
        .await;
    let error = json!({
        "requestId": start["requestId"], "data": "", "end": true, "error": { "message": "no budget" },
    });
    client
        .request("llmInference.httpResponseChunk", &error)
        .await;
    let message = client.event("session.error").await["message"].clone();
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.contains("no budget")),
        "{message}"
    );
    let late = client
        .request("llmInference.httpResponseChunk", &error)
        .await;
    assert_eq!(late["accepted"], false);
}

#[tokio::test]
async fn client_returns_a_token_for_each_request() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    let options = json!({
        "model": "red/m",
        "providers": [{ "name": "red", "baseUrl": "https://red.invalid", "hasBearerTokenProvider": true }],
        "models": [{ "id": "m", "provider": "red" }],
    });
    client.create("s", &options).await;
    for token in ["one", "two"] {
        let message = json!({ "sessionId": "s", "prompt": "hello" });
        client.request("session.send", &message).await;
        let answer = json!({ "token": token });
        let asked = answered(&mut client, "providerToken.getToken", &answer).await;
        assert_eq!(asked, json!({ "providerName": "red", "sessionId": "s" }));
        let start = answered(&mut client, "llmInference.httpRequestStart", &json!({})).await;
        let expected = json!([format!("Bearer {token}")]);
        assert_eq!(start["headers"]["authorization"], expected);
        answered(&mut client, "llmInference.httpRequestChunk", &json!({})).await;
        respond(&mut client, &start, 404, &[]).await;
        client.event("session.error").await;
        client.event("session.idle").await;
    }
}

/// A client gets back the endpoint that a client has named, and never a key of the configuration.
#[tokio::test]
async fn endpoint_of_a_named_provider_is_returned() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &provider("responses")).await;
    let session = json!({ "sessionId": "s" });
    let endpoint = client
        .request("session.provider.getEndpoint", &session)
        .await;
    let expected = json!({
        "type": "openai", "wireApi": "responses", "baseUrl": "https://byok.invalid/v1",
        "apiKey": "secret", "headers": {},
    });
    assert_eq!(endpoint, expected);
    client.create("t", &json!({})).await;
    let other = client
        .answer("session.provider.getEndpoint", &json!({ "sessionId": "t" }))
        .await;
    assert!(other["error"].is_object(), "{other}");
    let tools = client.request("tools.list", &json!({})).await;
    let tools = tools["tools"].as_array().expect("tools");
    assert!(tools.iter().any(|tool| tool["name"] == "bash"), "{tools:?}");
}
