//! Limits of a session's cost in AI credits.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer, test_options};

/// A call costs 0.02 dollars, which are two AI credits.
const PRICE: &str = "[model]\nprice = { input = 10.0, output = 10.0 }\n";

const SCRIPT: &str =
    "turns:\n- replies:\n  - {text: One., usage: {input_tokens: 1000, output_tokens: 1000}}\n";

async fn send(client: &mut TestClient, prompt: &str) {
    let message = json!({ "sessionId": "s", "prompt": prompt });
    client.request("session.send", &message).await;
}

fn limited(credits: u32) -> Value {
    json!({ "sessionLimits": { "maxAiCredits": credits } })
}

#[tokio::test]
async fn used_credits_end_the_calls_until_the_limit_is_raised() {
    let server = TestServer::with_options(PRICE, SCRIPT, test_options()).await;
    let mut client = server.client();
    client.create("s", &limited(1)).await;
    // One call may exceed the limit.
    send(&mut client, "first").await;
    assert_eq!(client.event("assistant.message").await["content"], "One.");
    client.event("session.idle").await;
    send(&mut client, "second").await;
    let error = client.event("session.error").await;
    let text = error["message"].as_str().expect("a text");
    assert!(text.contains("has used its 1 AI credits"), "{text}");
    client.event("session.idle").await;
    let mut raised = limited(30);
    raised["sessionId"] = "s".into();
    client.request("session.options.update", &raised).await;
    let changed = client.event("session.session_limits_changed").await;
    assert_eq!(changed["sessionLimits"]["maxAiCredits"], 30.0);
    send(&mut client, "third").await;
    client.event("assistant.message").await;
}

#[tokio::test]
async fn limit_of_a_model_without_a_price_is_refused() {
    let server = TestServer::with_options("", SCRIPT, test_options()).await;
    let mut client = server.client();
    let mut params = limited(30);
    params["sessionId"] = "s".into();
    let answer = client.answer("session.create", &params).await;
    let text = answer["error"]["message"].as_str().expect("a refusal");
    assert!(text.contains("price"), "{text}");
}

/// A misspelt limit would be no limit.
#[tokio::test]
async fn wrong_limits_are_refused() {
    let server = TestServer::with_options(PRICE, SCRIPT, test_options()).await;
    let mut client = server.client();
    for (limits, named) in [
        (json!({ "maxCredits": 1 }), "maxCredits"),
        (json!({ "maxAiCredits": -1 }), "negative"),
    ] {
        let params = json!({ "sessionId": "s", "sessionLimits": limits });
        let answer = client.answer("session.create", &params).await;
        let text = answer["error"]["message"].as_str().expect("a refusal");
        assert!(text.contains(named), "{text}");
    }
    client.create("s", &limited(1)).await;
    let wrong = json!({ "sessionId": "s", "sessionLimits": { "maxCredits": 3 } });
    let answer = client.answer("session.options.update", &wrong).await;
    assert!(answer["error"].is_object(), "{answer}");
}
