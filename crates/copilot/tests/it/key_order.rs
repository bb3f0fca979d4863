//! Order of the keys in arguments and schemas. Providers cache the beginning of a prompt by its bytes.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::TestServer;

const ARGUMENTS: &str = r#"{"z":1,"a":{"y":2,"b":3}}"#;

/// Creates a schema whose keys are not sorted.
fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["z"],
        "properties": { "z": { "type": "integer" }, "a": { "type": "object" } },
        "additionalProperties": false,
    })
}

#[tokio::test]
async fn keys_keep_their_order() {
    let model = OpenAiServer::start([
        ServerAnswer::text("").tool_call("call_1", "act", ARGUMENTS),
        ServerAnswer::text("Done."),
    ]);
    let server = TestServer::new("turns: [{replies: [{text: unused}]}]").await;
    let mut client = server.client();
    let options = json!({
        "tools": [{ "name": "act", "parameters": schema() }],
        "model": "m",
        "provider": { "type": "openai", "baseUrl": format!("{}/v1", model.url()) },
    });
    client.create("s", &options).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let requested = client.event("external_tool.requested").await;
    assert_eq!(requested["arguments"].to_string(), ARGUMENTS);
    let answer = json!({
        "sessionId": "s",
        "requestId": requested["requestId"],
        "result": "acted",
    });
    client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    client.event("session.idle").await;

    let requests = model.seen().requests;
    let [first, second] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    let tools = first.body["tools"].as_array().expect("tools");
    let act = tools.iter().find(|tool| tool["function"]["name"] == "act");
    let parameters = &act.expect("the tool")["function"]["parameters"];
    assert_eq!(parameters.to_string(), schema().to_string());
    let is_call = |message: &&Value| message.get("tool_calls").is_some();
    let repeated = second.messages().iter().find(is_call).expect("the call");
    let arguments = &repeated["tool_calls"][0]["function"]["arguments"];
    assert_eq!(*arguments, ARGUMENTS);

    let history = json!({ "sessionId": "s" });
    let history = client.request("session.getMessages", &history).await;
    let events = history["events"].as_array().expect("events");
    let started = |event: &&Value| event["type"] == "tool.execution_start";
    let started = events.iter().find(started).expect("the start of the call");
    assert_eq!(started["data"]["arguments"].to_string(), ARGUMENTS);
}
