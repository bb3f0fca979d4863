//! Calls of sub-agents (agents that a tool call starts): of client tools, and of shells that require permission.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = r#"
turns:
  - when: delegate
    replies:
      - calls: [{tool: task, arguments: {prompt: "use the tool"}}]
      - text: "Delegated."
  - when: begin behind
    replies:
      - calls: [{tool: task, arguments: {prompt: "use the tool", mode: background}}]
      - text: "Began."
  - when: "use the tool"
    replies:
      - calls: [{tool: act, arguments: {n: 7}}]
      - text: "Used it."
  - when: "go deep"
    replies:
      - calls: [{tool: task, arguments: {prompt: "run the shell"}}]
      - text: "Ran."
  - when: "look around"
    replies:
      - calls: [{tool: task, arguments: {agent_type: explore, prompt: "look and change"}}]
      - text: "Looked."
  - when: "look and change"
    replies:
      - calls: [{tool: view, arguments: {path: "."}}, {tool: bash, arguments: {command: "touch a"}}]
      - text: "Seen."
  - when: "split the work"
    replies: [{text: "Split."}]
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

/// The built-in agent `explore` has only tools that read.
#[tokio::test]
async fn agent_explore_reads_only() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({ "hooks": true })).await;
    let message = json!({ "sessionId": "s", "prompt": "look around" });
    client.send("session.sendAndWait", &message).await;
    let mut tools = Vec::new();
    // The result of `task` is the last one.
    while tools.last() != Some(&json!("task")) {
        let hook = client
            .take("a hook", |message| message["method"] == "hooks.invoke")
            .await;
        let params = &hook["params"];
        if params["hookType"] == "postToolUse" {
            tools.push(params["input"]["toolName"].clone());
        }
        let answer = json!({ "jsonrpc": "2.0", "id": hook["id"], "result": {} });
        client.message(&answer).await;
    }
    assert_eq!(tools, ["view", "task"], "the agent has no shell");
}

/// True if the model can start the agent `explore`.
async fn has_explorer(client: &mut TestClient) -> bool {
    let message = json!({ "sessionId": "s", "prompt": "look around" });
    client.request("session.sendAndWait", &message).await;
    let ended = client.event("tool.execution_complete").await;
    ended["success"] == true
}

#[tokio::test]
async fn excluded_agents_are_not_offered() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let excluded = json!({ "excludedBuiltinAgents": ["explore"] });
    client.create("s", &excluded).await;
    assert!(!has_explorer(&mut client).await);
}

#[tokio::test]
async fn settings_of_sub_agents_change_while_the_session_is_open() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let method = "session.tools.updateSubagentSettings";
    let update = |settings: Value| json!({ "sessionId": "s", "subagents": settings });
    for (refused, word) in [
        (json!({ "agents": { "other": {} } }), "unknown agent"),
        (json!({ "maxDepth": 3 }), "maxDepth"),
        (
            json!({ "agents": { "explore": { "contextTier": "endless" } } }),
            "endless",
        ),
    ] {
        let answer = client.answer(method, &update(refused)).await;
        let message = answer["error"]["message"].to_string();
        assert!(message.contains(word), "{message}");
    }
    let settings = json!({
        "agents": { "general-purpose": { "effortLevel": "low", "contextTier": "default" } },
        "disabledSubagents": ["explore"],
    });
    client.request(method, &update(settings)).await;
    assert!(!has_explorer(&mut client).await);
    client.request(method, &update(Value::Null)).await;
    assert!(has_explorer(&mut client).await);
}

#[tokio::test]
async fn settings_of_sub_agents_without_effect_cause_a_warning() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let settings = json!({
        "agents": { "general-purpose": { "effortLevel": "low", "contextTier": "long_context" } },
        "disabledSubagents": ["legacy-agent", "explore"],
    });
    let update = json!({ "sessionId": "s", "subagents": settings });
    let method = "session.tools.updateSubagentSettings";
    client.request(method, &update).await;
    for words in [
        "`agents.general-purpose.contextTier`",
        "unknown agent \"legacy-agent\"",
    ] {
        let warning = client.event("session.warning").await;
        let message = warning["message"].as_str().expect("a text");
        assert!(message.contains(words), "{message}");
    }
    assert!(!has_explorer(&mut client).await);
}

#[tokio::test]
async fn a_fleet_is_a_message_that_asks_for_sub_agents() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let start = json!({ "sessionId": "s", "prompt": "begin: split the work" });
    let started = client.request("session.fleet.start", &start).await;
    assert_eq!(started, json!({ "started": true }));
    let message = client.event("user.message").await;
    let text = message["content"].as_str().expect("a text");
    assert!(
        text.ends_with("begin: split the work") && text.contains("`task`"),
        "{text}"
    );
    client.event("session.idle").await;

    client
        .create("t", &json!({ "excludedTools": ["task"] }))
        .await;
    let start = json!({ "sessionId": "t", "prompt": "go" });
    let refused = client.answer("session.fleet.start", &start).await;
    assert!(
        refused["error"]["message"].to_string().contains("`task`"),
        "{refused}"
    );
}
