//! The switch of a session to the auto model when the provider limits the rate of requests.

use serde_json::{Value, json};

use crate::carried_requests::answered;
use crate::support::{TestClient, TestServer, test_options};

/// The client carries all requests to models, so the server never uses this script.
const SCRIPT: &str = "turns: [{replies: [{text: Not used.}]}]";

const CONFIG: &str = "[model]\nname = 'big'\nbase_url = 'http://127.0.0.1:1/v1'\nretries = 0\n";

/// Opens a session whose client handles the question, and sends a message.
async fn asked(options: &Value) -> (TestServer, TestClient) {
    let auto_model = test_options().auto_model(Some("small".into()));
    let server = TestServer::with_options(CONFIG, SCRIPT, auto_model).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    client.create("s", options).await;
    send(&mut client).await;
    (server, client)
}

async fn send(client: &mut TestClient) {
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    client.request("session.send", &message).await;
}

/// Takes the next request to a model. Returns its id and the name of the model.
async fn requested(client: &mut TestClient) -> (Value, String) {
    let start = answered(client, "llmInference.httpRequestStart", &json!({})).await;
    let chunk = answered(client, "llmInference.httpRequestChunk", &json!({})).await;
    let body = chunk["data"].as_str().expect("a text");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let model = body["model"].as_str().expect("a name").to_owned();
    (start["requestId"].clone(), model)
}

async fn respond(client: &mut TestClient, id: &Value, status: u16, body: &str) {
    let headers = json!({ "retry-after": ["1"] });
    let start = json!({ "requestId": id, "status": status, "headers": headers });
    client
        .request("llmInference.httpResponseStart", &start)
        .await;
    let chunk = json!({ "requestId": id, "data": body, "end": true });
    client
        .request("llmInference.httpResponseChunk", &chunk)
        .await;
}

async fn limit(client: &mut TestClient) {
    let (id, model) = requested(client).await;
    assert_eq!(model, "big");
    let error = json!({ "error": { "message": "too much", "code": "user_weekly_rate_limited" } });
    respond(client, &id, 429, &error.to_string()).await;
}

async fn answer_call(client: &mut TestClient, expected: &str) {
    let (id, model) = requested(client).await;
    assert_eq!(model, expected);
    let event = json!({ "choices": [{ "delta": { "content": "Hi." }, "finish_reason": "stop" }] });
    respond(client, &id, 200, &format!("data: {event}\n\n")).await;
    assert_eq!(client.event("assistant.message").await["content"], "Hi.");
}

#[tokio::test]
async fn session_continues_with_the_auto_model() {
    let (_server, mut client) = asked(&json!({ "requestAutoModeSwitch": true })).await;
    limit(&mut client).await;
    let yes = json!({ "response": "yes" });
    let question = answered(&mut client, "autoModeSwitch.request", &yes).await;
    let expected = json!({
        "sessionId": "s", "errorCode": "user_weekly_rate_limited", "retryAfterSeconds": 1,
    });
    assert_eq!(question, expected);
    let event = client.event("auto_mode_switch.requested").await;
    assert_eq!(event["errorCode"], "user_weekly_rate_limited");
    let completed = client.event("auto_mode_switch.completed").await;
    assert_eq!(completed["requestId"], event["requestId"]);
    assert_eq!(completed["response"], "yes");
    let change = client.event("session.model_change").await;
    assert_eq!(change["cause"], "rate_limit_auto_switch");
    assert_eq!(change["newModel"], "small");
    answer_call(&mut client, "small").await;
    client.event("session.idle").await;
    let session = json!({ "sessionId": "s" });
    let current = client.request("session.model.getCurrent", &session).await;
    assert_eq!(current["modelId"], "small");
    send(&mut client).await;
    answer_call(&mut client, "small").await;
}

/// A handler that answers the event gets the question instead of the client's callback.
#[tokio::test]
async fn registered_handler_answers_the_event() {
    let auto_model = test_options().auto_model(Some("small".into()));
    let server = TestServer::with_options(CONFIG, SCRIPT, auto_model).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    let options = json!({ "requestAutoModeSwitch": true });
    client.create("s", &options).await;
    let session = json!({ "sessionId": "s" });
    let register = "session.ui.registerDirectAutoModeSwitchHandler";
    let registered = client.request(register, &session).await;
    send(&mut client).await;
    limit(&mut client).await;
    let event = client.event("auto_mode_switch.requested").await;
    let answer =
        json!({ "sessionId": "s", "requestId": event["requestId"], "response": "yes_always" });
    let method = "session.ui.handlePendingAutoModeSwitch";
    assert_eq!(client.request(method, &answer).await["success"], true);
    assert_eq!(client.request(method, &answer).await["success"], false);
    answer_call(&mut client, "small").await;
    let is_request = |message: &&Value| message["method"] == "autoModeSwitch.request";
    assert!(!client.seen().iter().any(|message| is_request(&message)));
    let handle = json!({ "sessionId": "s", "handle": registered["handle"] });
    let unregister = "session.ui.unregisterDirectAutoModeSwitchHandler";
    assert_eq!(
        client.request(unregister, &handle).await["unregistered"],
        true
    );
    assert_eq!(
        client.request(unregister, &handle).await["unregistered"],
        false
    );
}

#[tokio::test]
async fn declined_switch_ends_the_turn_with_the_limit() {
    let (_server, mut client) = asked(&json!({ "requestAutoModeSwitch": true })).await;
    limit(&mut client).await;
    answered(
        &mut client,
        "autoModeSwitch.request",
        &json!({ "response": "no" }),
    )
    .await;
    let error = client.event("session.error").await;
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("too much")),
        "{error}"
    );
    let current = client
        .request("session.model.getCurrent", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(current["modelId"], "big");
}

/// Attaches another client to the session.
async fn resumed(server: &TestServer, options: &Value) -> TestClient {
    let mut client = server.client();
    let mut params = options.clone();
    params["sessionId"] = "s".into();
    client.request("session.resume", &params).await;
    client
}

/// Opens a session whose first client has these options, and a second client that handles the question.
async fn two_clients(options: &Value) -> (TestServer, TestClient, TestClient) {
    let auto_model = test_options().auto_model(Some("small".into()));
    let server = TestServer::with_options(CONFIG, SCRIPT, auto_model).await;
    let mut client = server.client();
    client.request("llmInference.setProvider", &json!({})).await;
    client.create("s", options).await;
    let second = resumed(&server, &json!({ "requestAutoModeSwitch": true })).await;
    (server, client, second)
}

/// Waits until the client is asked, and ends its connection without an answer.
async fn ask_and_end(mut asked: TestClient) {
    let is_question = |message: &Value| message["method"] == "autoModeSwitch.request";
    asked.take("the question", is_question).await;
    asked.end().await;
}

#[tokio::test]
async fn another_client_is_asked_after_the_end_of_the_first() {
    let (_server, mut client, second) =
        two_clients(&json!({ "requestAutoModeSwitch": true })).await;
    send(&mut client).await;
    limit(&mut client).await;
    ask_and_end(second).await;
    let yes = json!({ "response": "yes" });
    answered(&mut client, "autoModeSwitch.request", &yes).await;
    answer_call(&mut client, "small").await;
}

/// A question that no client has answered is no refusal, so the next limit leads to another question.
#[tokio::test]
async fn end_of_all_asked_clients_declines_nothing() {
    let (server, mut client, second) = two_clients(&json!({})).await;
    send(&mut client).await;
    limit(&mut client).await;
    ask_and_end(second).await;
    let completed = client.event("auto_mode_switch.completed").await;
    assert_eq!(completed["response"], "no");
    client.event("session.error").await;
    let mut third = resumed(&server, &json!({ "requestAutoModeSwitch": true })).await;
    send(&mut client).await;
    limit(&mut client).await;
    let yes = json!({ "response": "yes" });
    answered(&mut third, "autoModeSwitch.request", &yes).await;
    answer_call(&mut client, "small").await;
}

#[tokio::test]
async fn callback_is_asked_after_the_end_of_the_registered_handler() {
    let (_server, mut client, mut second) =
        two_clients(&json!({ "requestAutoModeSwitch": true })).await;
    let register = "session.ui.registerDirectAutoModeSwitchHandler";
    second.request(register, &json!({ "sessionId": "s" })).await;
    send(&mut client).await;
    limit(&mut client).await;
    second.event("auto_mode_switch.requested").await;
    second.end().await;
    let yes = json!({ "response": "yes" });
    answered(&mut client, "autoModeSwitch.request", &yes).await;
    answer_call(&mut client, "small").await;
}

/// The stop withdraws the question. Its handler may still run in the client, and the receipt names it.
#[tokio::test]
async fn stop_withdraws_the_question() {
    let (_server, mut client) = asked(&json!({ "requestAutoModeSwitch": true })).await;
    limit(&mut client).await;
    let asked = |message: &Value| message["method"] == "autoModeSwitch.request";
    client.take("the question", asked).await;
    let aborted = client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    let items = aborted["receipt"]["items"].as_array().expect("items");
    let call = items.iter().find(|item| item["kind"] == "model_call");
    assert_eq!(
        call.map(|call| &call["state"]),
        Some(&json!("unreachable")),
        "{aborted}"
    );
    let completed = client.event("auto_mode_switch.completed").await;
    assert_eq!(completed["response"], "no");
}

#[tokio::test]
async fn server_without_an_auto_model_warns() {
    let server = TestServer::with_options(CONFIG, SCRIPT, test_options()).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "requestAutoModeSwitch": true }))
        .await;
    let warning = client.event("session.warning").await;
    let text = warning["message"].as_str().expect("a text");
    assert!(text.contains("--auto-model"), "{text}");
}
