//! Hooks whose clients do not answer correctly.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{calls: [{tool: act, arguments: {}}]}, {text: Done.}]}]";

/// Answers the next hook of this type.
async fn answer_hook(client: &mut TestClient, kind: &str, answer: &Value) {
    let is_it = |message: &Value| message["params"]["hookType"] == kind;
    let hook = client.take(kind, is_it).await;
    let mut message = json!({ "jsonrpc": "2.0", "id": hook["id"] });
    for (name, value) in answer.as_object().expect("an object") {
        message[name] = value.clone();
    }
    client.message(&message).await;
}

/// Answers the hooks at the start of a turn without a change.
async fn answer_prompt_hooks(client: &mut TestClient) {
    for kind in ["userPromptSubmitted", "userPromptTransformed"] {
        answer_hook(client, kind, &json!({ "result": {} })).await;
    }
}

/// Answers the next hook of this type with this output. Returns the input of the hook.
async fn answer_with(client: &mut TestClient, kind: &str, output: &Value) -> Value {
    let is_it = |message: &Value| message["params"]["hookType"] == kind;
    let mut hook = client.take(kind, is_it).await;
    let result = json!({ "output": output });
    let answer = json!({ "jsonrpc": "2.0", "id": hook["id"], "result": result });
    client.message(&answer).await;
    hook["params"]["input"].take()
}

/// A failed hook does not permit its call, so the call does not run.
#[tokio::test]
async fn hook_that_fails_denies_the_call() {
    let server = TestServer::new(SCRIPT).await;
    for (number, answer) in [
        json!({ "error": { "code": -32603, "message": "boom" } }),
        json!({ "result": { "output": "no object" } }),
        json!({ "result": { "output": { "permissionDecision": "deny" } } }),
    ]
    .iter()
    .enumerate()
    {
        let mut client = server.client();
        let id = format!("s{number}");
        let options = json!({ "tools": [{ "name": "act" }], "hooks": true });
        client.create(&id, &options).await;
        let message = json!({ "sessionId": id, "prompt": "go" });
        client.request("session.send", &message).await;
        answer_hook(&mut client, "sessionStart", &json!({ "result": {} })).await;
        answer_prompt_hooks(&mut client).await;
        answer_hook(&mut client, "preToolUse", answer).await;
        let completed = client.event("tool.execution_complete").await;
        assert_eq!(
            completed["error"]["code"], "denied",
            "{answer}: {completed}"
        );
        let asked =
            |message: &&Value| message["params"]["event"]["type"] == "external_tool.requested";
        assert_eq!(client.seen().iter().find(asked), None, "the call ran");
    }
}

/// The handler of a hook continues in the client. Therefore the receipt of a stop does not claim that the handler has
/// ended.
#[tokio::test]
async fn stalled_hook_is_not_called_stopped() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let options = json!({ "tools": [{ "name": "act" }], "hooks": true });
    client.create("s", &options).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    answer_hook(&mut client, "sessionStart", &json!({ "result": {} })).await;
    let is_hook = |message: &Value| message["params"]["hookType"] == "userPromptSubmitted";
    client.take("a hook", is_hook).await;
    let stop = json!({ "sessionId": "s" });
    let stopped = client.request("allstop.stop", &stop).await;
    let receipt = &stopped["receipt"];
    assert_eq!(receipt["quiet"], false, "{receipt}");
    let items = receipt["items"].as_array().expect("items");
    let is_left = |item: &&Value| item["state"] == "unreachable";
    let left: Vec<_> = items.iter().filter(is_left).collect();
    let [item] = left.as_slice() else {
        panic!("{receipt}");
    };
    assert_eq!(item["name"], "hook userPromptSubmitted of the client");
}

/// If a hook changes the arguments of a call, the call does not run with its old arguments. The client receives a
/// warning.
#[tokio::test]
async fn hook_that_changes_arguments_denies_the_call() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let options = json!({ "tools": [{ "name": "act" }], "hooks": true });
    client.create("s", &options).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    answer_hook(&mut client, "sessionStart", &json!({ "result": {} })).await;
    answer_prompt_hooks(&mut client).await;
    let output = json!({ "permissionDecision": "allow", "modifiedArgs": { "safe": true } });
    let answer = json!({ "result": { "output": output } });
    answer_hook(&mut client, "preToolUse", &answer).await;
    let warning = client.event("session.warning").await;
    let text = warning["message"].as_str().expect("text");
    assert!(
        text.contains("`modifiedArgs` of the hook preToolUse"),
        "{text}"
    );
    let completed = client.event("tool.execution_complete").await;
    assert_eq!(completed["error"]["code"], "denied", "{completed}");
}

/// Hooks replace the prompt and a result, and prolong the turn. The model receives the new texts.
#[tokio::test]
async fn hooks_change_the_texts_for_the_model() {
    let model = OpenAiServer::start([
        ServerAnswer::text("").tool_call("call_1", "act", "{}"),
        ServerAnswer::text("First."),
        ServerAnswer::text("Second."),
    ]);
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let options = json!({
        "tools": [{ "name": "act" }],
        "hooks": true,
        "model": "m",
        "provider": { "type": "openai", "baseUrl": format!("{}/v1", model.url()) },
    });
    client.create("s", &options).await;
    let message = json!({ "sessionId": "s", "prompt": "old" });
    client.request("session.send", &message).await;
    answer_with(&mut client, "sessionStart", &json!({})).await;
    let output = json!({ "modifiedPrompt": "new" });
    let input = answer_with(&mut client, "userPromptSubmitted", &output).await;
    assert_eq!(input["prompt"], "old");
    let output = json!({ "modifiedTransformedPrompt": "newer" });
    let input = answer_with(&mut client, "userPromptTransformed", &output).await;
    assert_eq!(input["prompt"], "new");
    let transformed = input["transformedPrompt"].as_str().expect("text");
    assert!(transformed.starts_with("<current_datetime>") && transformed.ends_with("new"));
    answer_with(&mut client, "preToolUse", &json!({})).await;
    let requested = client.event("external_tool.requested").await;
    let acted = json!({
        "sessionId": "s",
        "requestId": requested["requestId"],
        "result": "acted",
    });
    client
        .request("session.tools.handlePendingToolCall", &acted)
        .await;
    let result = json!({ "textResultForLlm": "changed", "resultType": "success" });
    let output = json!({ "modifiedResult": result });
    let input = answer_with(&mut client, "postToolUse", &output).await;
    assert_eq!(input["toolResult"]["textResultForLlm"], "acted");
    let completed = client.event("tool.execution_complete").await;
    assert_eq!(completed["result"]["content"], "changed", "{completed}");
    let output = json!({ "decision": "block", "reason": "go on" });
    let input = answer_with(&mut client, "agentStop", &output).await;
    assert_eq!(input["stop_hook_active"], false);
    let input = answer_with(&mut client, "agentStop", &json!({})).await;
    assert_eq!(input["stop_hook_active"], true);
    client.event("session.idle").await;

    let requests = model.seen().requests;
    let last = requests.last().expect("requests");
    let texts = last
        .messages()
        .iter()
        .filter(|message| message["role"] != "system");
    let texts: Vec<_> = texts
        .map(|message| (message["role"].as_str(), message["content"].as_str()))
        .collect();
    let expected = [
        (Some("user"), Some("newer")),
        (Some("tool"), Some("changed")),
        (Some("assistant"), Some("First.")),
        (Some("user"), Some("go on")),
    ];
    let is_expected = |text: &(Option<&str>, Option<&str>)| expected.contains(text);
    let found: Vec<_> = texts.iter().copied().filter(is_expected).collect();
    assert_eq!(found, expected, "{texts:?}");
    let has_old = texts
        .iter()
        .any(|(_, text)| matches!(text, Some("old" | "acted")));
    assert!(!has_old, "{texts:?}");
}
