//! Answers of the clients' handlers, and the questions before their calls.

use std::collections::HashSet;

use serde_json::json;

use crate::support::TestServer;

const SECRET: &str = "Melbourne";

/// The SDKs send the text of an exception as `error`. The text can hold secrets of the program, so the model gets only
/// the fact.
#[tokio::test]
async fn model_never_reads_the_exception_of_a_handler() {
    let server = TestServer::new(
        "turns: [{replies: [{calls: [{tool: locate, arguments: {}}]}, {text: Unknown.}]}]",
    )
    .await;
    for (n, answer) in [
        json!({ "error": SECRET }),
        json!({ "result": { "resultType": "failure", "error": SECRET } }),
        json!({ "result": { "error": SECRET } }),
        json!({ "result": { "textResultForLlm": "no place", "resultType": "failure", "error": SECRET } }),
        json!({ "result": { "textResultForLlm": "no place", "error": SECRET } }),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("s{n}");
        let mut client = server.client();
        let tools = json!([{ "name": "locate" }]);
        client.create(&id, &json!({ "tools": tools, "hooks": false })).await;
        let message = json!({ "sessionId": id, "prompt": "go" });
        client.request("session.send", &message).await;
        let request = client.event("external_tool.requested").await;
        let mut params = answer.clone();
        params["sessionId"] = id.as_str().into();
        params["requestId"] = request["requestId"].clone();
        client
            .request("session.tools.handlePendingToolCall", &params)
            .await;
        let done = client.event("tool.execution_complete").await;
        assert_eq!(done["success"], false, "{answer}: {done}");
        client.event("session.idle").await;
        let session = json!({ "sessionId": id });
        let history = client.request("session.getMessages", &session).await;
        let seen = format!("{:?}{history}", client.seen());
        assert!(!seen.contains(SECRET), "{answer}");
        let text = answer["result"]["textResultForLlm"].as_str();
        let text = text.unwrap_or("the handler of the tool failed");
        assert!(seen.contains(text), "{answer}");
    }
}

/// The client gets the questions of all calls of a step, and answers them in any order.
#[tokio::test]
async fn questions_of_parallel_calls_come_together() {
    let server = TestServer::new(
        "turns: [{replies: [{calls: [{tool: bash, arguments: {command: touch a}}, \
         {tool: bash, arguments: {command: touch b}}]}, {text: Done.}]}]",
    )
    .await;
    let mut client = server.client();
    client
        .create("s", &json!({ "requestPermission": true }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let one = client.event("permission.requested").await;
    let two = client.event("permission.requested").await;
    for asked in [two, one] {
        let answer = json!({
            "sessionId": "s",
            "requestId": asked["requestId"],
            "result": { "kind": "approve-once" },
        });
        let method = "session.permissions.handlePendingPermissionRequest";
        client.request(method, &answer).await;
        // The call ends although the other question is open.
        let done = client.event("tool.execution_complete").await;
        assert_eq!(done["success"], true, "{done}");
        let call = &asked["permissionRequest"]["toolCallId"];
        let ids: HashSet<_> = [call, &done["toolCallId"]].into();
        assert_eq!(ids.len(), 1, "{asked} {done}");
    }
    client.event("session.idle").await;
}
