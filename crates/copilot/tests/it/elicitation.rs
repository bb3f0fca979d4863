//! Questions of MCP servers as requests to the clients' handlers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{SOON, TestClient, TestServer};

/// An MCP server whose call asks for a name, and writes the answer into the file `answer.json`.
const MCP_SERVER: &str = r#"
import json, os, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
SCHEMA = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "title": "Name"}}}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        send({"id": message["id"], "result": {"protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "tools/list":
        tool = {"name": "greet", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        send({"id": message["id"], "result": {"tools": [tool]}})
    elif method == "tools/call":
        call = message["id"]
        send({"id": "q", "method": "elicitation/create",
            "params": {"message": "Who are you?", "requestedSchema": SCHEMA}})
    elif method is None and message.get("id") == "q":
        with open(sys.argv[1] + ".new", "w") as file: json.dump(message["result"], file)
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        send({"id": call, "result": {"content": [{"type": "text", "text": "greeted"}]}})
    elif method is not None and "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
"#;

/// A server with this MCP server, and the file for the answer.
async fn server() -> (TestServer, PathBuf, TempDir) {
    let place = TempDir::new().expect("a temporary folder");
    let (script, answer) = (place.path().join("s.py"), place.path().join("answer.json"));
    std::fs::write(&script, MCP_SERVER).expect("a temporary folder");
    let config = format!(
        "[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"{}\", \"{}\"]\n[permissions]\nallow = [\"s__greet\"]\n",
        script.display(),
        answer.display()
    );
    let model = "turns: [{replies: [{calls: [{tool: s__greet, arguments: {}}]}, {text: Done.}]}]";
    let unattended = Duration::from_mins(1);
    let server = TestServer::configured(&config, model, unattended, PermissionAnswer::Unanswered);
    (server.await, answer, place)
}

async fn asked(server: &TestServer) -> (TestClient, Value) {
    let mut client = server.client();
    client
        .create("s", &json!({ "requestElicitation": true }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let asked = client.event("elicitation.requested").await;
    (client, asked)
}

async fn answer(client: &mut TestClient, asked: &Value, result: &Value) -> Value {
    let params = json!({ "sessionId": "s", "requestId": asked["requestId"], "result": result });
    client
        .answer("session.ui.handlePendingElicitation", &params)
        .await
}

async fn written(file: &Path) -> Value {
    let written = async {
        loop {
            if let Ok(text) = std::fs::read_to_string(file) {
                return serde_json::from_str(&text).expect("JSON of the server");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, written)
        .await
        .expect("the server gets an answer")
}

#[tokio::test]
async fn handler_of_a_client_fills_in_the_form() {
    let (server, file, _place) = server().await;
    let (mut client, asked) = asked(&server).await;
    assert_eq!(
        asked,
        json!({
            "requestId": "form_1",
            "toolCallId": asked["toolCallId"],
            "elicitationSource": "s",
            "message": "Who are you?",
            "mode": "form",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        })
    );
    let invalid = json!({"action": "accept", "content": {"name": 1}});
    let refused = answer(&mut client, &asked, &invalid).await;
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("`Name`: a text"), "{refused}");
    let valid = json!({"action": "accept", "content": {"name": "Ada"}});
    let taken = answer(&mut client, &asked, &valid).await;
    assert_eq!(taken["result"], json!({ "success": true }));
    let completed = client.event("elicitation.completed").await;
    assert_eq!(completed, json!({ "requestId": "form_1" }));
    let late = answer(&mut client, &asked, &valid).await;
    assert_eq!(late["result"], json!({ "success": false }));
    client.event("session.idle").await;
    assert_eq!(written(&file).await, valid);
}

#[tokio::test]
async fn abort_withdraws_the_question_and_the_server_gets_a_cancel() {
    let (server, file, _place) = server().await;
    let (mut client, asked) = asked(&server).await;
    let session = json!({ "sessionId": "s" });
    let aborted = client.request("session.abort", &session).await;
    client.event("elicitation.completed").await;
    assert_eq!(written(&file).await, json!({ "action": "cancel" }));
    let receipt = &aborted["receipt"];
    let items = receipt["items"].as_array().expect("a receipt");
    let call = items.iter().find(|item| item["name"] == "s__greet");
    assert!(call.is_some(), "{receipt}");
    let accept = json!({"action": "accept", "content": {"name": "Ada"}});
    let late = answer(&mut client, &asked, &accept).await;
    assert_eq!(late["result"], json!({ "success": false }));
}

/// A client that attaches later gets the open question. Without any handler, the question is declined.
#[tokio::test]
async fn question_stays_open_while_a_client_has_a_handler() {
    let (server, file, _place) = server().await;
    let (mut client, asked) = asked(&server).await;
    let mut second = server.client();
    let resume = json!({ "sessionId": "s", "requestElicitation": true });
    second.request("session.resume", &resume).await;
    assert_eq!(second.event("elicitation.requested").await, asked);
    let session = json!({ "sessionId": "s" });
    client.request("session.detach", &session).await;
    let mut third = server.client();
    third.request("session.resume", &session).await;
    second.request("session.detach", &session).await;
    third.event("elicitation.completed").await;
    assert_eq!(written(&file).await, json!({ "action": "decline" }));
    third.event("session.idle").await;
}
