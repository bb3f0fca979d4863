//! The tool `exit_plan_mode`, whose question a client answers.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{calls: [{tool: exit_plan_mode, arguments: {summary: Greet}}]}, {text: Done.}]}]";

async fn ask(client: &mut TestClient) -> Value {
    client
        .create("s", &json!({ "requestExitPlanMode": true }))
        .await;
    let plan = json!({ "sessionId": "s", "content": "1. Greet." });
    client.request("session.plan.update", &plan).await;
    let mode = json!({ "sessionId": "s", "mode": "plan" });
    client.request("session.mode.set", &mode).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let is_it = |message: &Value| message["method"] == "exitPlanMode.request";
    client.take("the question", is_it).await
}

async fn answer(client: &mut TestClient, question: &Value, result: &Value) {
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    client.message(&answer).await;
}

#[tokio::test]
async fn approved_plan_ends_the_mode() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let question = ask(&mut client).await;
    let params = &question["params"];
    assert_eq!(params["summary"], "Greet");
    assert_eq!(params["planContent"], "1. Greet.");
    assert_eq!(
        params["actions"],
        json!(["autopilot", "interactive", "exit_only"])
    );
    let approval = json!({ "approved": true, "selectedAction": "interactive", "feedback": "ok" });
    answer(&mut client, &question, &approval).await;
    let completed = client.event("exit_plan_mode.completed").await;
    let requested = client.event("exit_plan_mode.requested").await;
    assert_eq!(completed["requestId"], requested["requestId"]);
    assert_eq!(completed["selectedAction"], "interactive");
    let end = client.event("tool.execution_complete").await;
    let text = end["result"]["content"].as_str().expect("text");
    assert!(text.contains("has approved the plan"), "{text}");
    assert!(text.ends_with("The user adds: ok"), "{text}");
    client.event("session.idle").await;
    let mode = json!({ "sessionId": "s" });
    assert_eq!(
        client.request("session.mode.get", &mode).await,
        "interactive"
    );
}

#[tokio::test]
async fn refused_plan_keeps_the_mode() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let question = ask(&mut client).await;
    answer(&mut client, &question, &json!({ "approved": false })).await;
    client.event("session.idle").await;
    let mode = json!({ "sessionId": "s" });
    assert_eq!(client.request("session.mode.get", &mode).await, "plan");
}

/// Without a handler, the model does not get the tool.
#[tokio::test]
async fn tool_needs_a_handler() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let end = client.event("tool.execution_complete").await;
    assert_eq!(end["success"], false, "{end}");
}
