//! Hooks whose client does not answer as it should.

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

/// A hook that fails has not allowed the call: it does not run.
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
