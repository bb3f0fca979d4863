//! Hooks whose clients do not answer correctly.

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
        answer_hook(&mut client, "userPromptSubmitted", &json!({ "result": {} })).await;
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
    answer_hook(&mut client, "userPromptSubmitted", &json!({ "result": {} })).await;
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
