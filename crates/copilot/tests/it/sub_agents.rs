//! Calls of sub-agents (agents that a tool call starts): of client tools, and of shells that require permission.

use serde_json::{Value, json};

use crate::support::TestServer;

const SCRIPT: &str = r#"
turns:
  - when: delegate
    replies:
      - calls: [{tool: agent, arguments: {prompt: "use the tool"}}]
      - text: "Delegated."
  - when: begin behind
    replies:
      - calls: [{tool: agent, arguments: {prompt: "use the tool", background: true}}]
      - text: "Began."
  - when: "use the tool"
    replies:
      - calls: [{tool: act, arguments: {n: 7}}]
      - text: "Used it."
  - when: "go deep"
    replies:
      - calls: [{tool: agent, arguments: {prompt: "run the shell"}}]
      - text: "Ran."
  - when: "run the shell"
    replies:
      - calls: [{tool: bash, arguments: {command: "echo deep"}}]
      - text: "Ran it."
"#;

/// The handler of a client's tool is also called for a sub-agent. The handler is notified of the end of the call.
#[tokio::test]
async fn client_tool_of_a_sub_agent_is_called() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let tools = json!([{ "name": "act", "skipPermission": true }]);
    client.create("s", &json!({ "tools": tools })).await;
    let message = json!({ "sessionId": "s", "prompt": "delegate" });
    let waiting = client.send("session.sendAndWait", &message).await;
    let request = client.event("external_tool.requested").await;
    let call = request["toolCallId"].as_str().expect("an id");
    assert!(call.contains('/'), "{request}");
    assert_eq!(request["arguments"]["n"], 7);
    let answer = json!({
        "sessionId": "s",
        "requestId": request["requestId"],
        "result": { "textResultForLlm": "done", "resultType": "success" },
    });
    let method = "session.tools.handlePendingToolCall";
    assert_eq!(client.request(method, &answer).await["success"], true);
    let completed = client.event("external_tool.completed").await;
    assert_eq!(completed["requestId"], request["requestId"]);
    let answer = client.answer_to(waiting).await;
    assert_eq!(answer["result"]["outcome"], "completed", "{answer}");
}

/// Calls of a background sub-agent continue after the end of a turn.
#[tokio::test]
async fn call_of_a_background_agent_outlives_the_turn() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let tools = json!([{ "name": "act", "skipPermission": true }]);
    client.create("s", &json!({ "tools": tools })).await;
    let message = json!({ "sessionId": "s", "prompt": "begin behind" });
    client.request("session.send", &message).await;
    let request = client.event("external_tool.requested").await;
    client.event("assistant.idle").await;
    let call = &request["toolCallId"];
    let is_end = |message: &&Value| {
        let event = &message["params"]["event"];
        event["data"]["toolCallId"] == *call && event["type"] == "tool.execution_complete"
    };
    assert_eq!(client.seen().iter().find(is_end), None);
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopped = client.request("allstop.stop", &stop).await;
    let items = stopped["receipt"]["items"].as_array().expect("items");
    assert!(items.iter().any(|item| item["id"] == *call), "{items:?}");
    let completed = client.event("external_tool.completed").await;
    assert_eq!(completed["requestId"], request["requestId"]);
}

/// The permission question for a call of a sub-agent contains the command.
#[tokio::test]
async fn question_of_a_sub_agent_has_its_command() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "requestPermission": true }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "go deep" });
    client.request("session.send", &message).await;
    let asked = client.event("permission.requested").await;
    let request = &asked["permissionRequest"];
    assert_eq!(request["fullCommandText"], "echo deep", "{request}");
}
