//! Views of MCP servers, and the meaning of the values of the servers' variables.

use serde_json::json;

use crate::support::TestServer;

const SCRIPT: &str = "turns: [{replies: [{text: Done.}]}]";

#[tokio::test]
async fn host_context_outlasts_a_change_of_the_session() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let context = json!({ "theme": "dark", "availableDisplayModes": ["inline"] });
    let set = json!({ "sessionId": "s", "context": context });
    client
        .request("session.mcp.apps.setHostContext", &set)
        .await;
    let change = json!({ "sessionId": "s", "excludedTools": ["bash"] });
    client.request("session.options.update", &change).await;
    let read = client
        .request(
            "session.mcp.apps.getHostContext",
            &json!({ "sessionId": "s" }),
        )
        .await;
    assert_eq!(read, json!({ "context": context }));
    let long = json!({ "sessionId": "s", "context": { "userAgent": "x".repeat(100_000) } });
    let refused = client
        .answer("session.mcp.apps.setHostContext", &long)
        .await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn diagnosis_describes_the_session_and_the_server() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({ "requestMcpApps": true })).await;
    let diagnosis = client
        .request(
            "session.mcp.apps.diagnose",
            &json!({ "sessionId": "s", "serverName": "none" }),
        )
        .await;
    assert_eq!(diagnosis["capability"]["sessionHasMcpApps"], true);
    let expected = json!({
        "connected": false, "toolCount": 0, "toolsWithUiMeta": 0, "sampleToolNames": [],
    });
    assert_eq!(diagnosis["server"], expected);
}

#[tokio::test]
async fn indirect_values_are_names_of_variables() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let servers =
        json!({ "a": { "command": "/does/not/exist", "env": { "X": "UNSET_VARIABLE" } } });
    client.create("s", &json!({ "mcpServers": servers })).await;
    let set = |mode: &str| json!({ "sessionId": "s", "mode": mode });
    let method = "session.mcp.setEnvValueMode";
    let refused = client.answer(method, &set("indirect")).await;
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("UNSET_VARIABLE is not set"), "{refused}");
    // The session keeps its former setting.
    assert_eq!(
        client.request(method, &set("direct")).await,
        json!({ "mode": "direct" })
    );
    let list = client
        .request("session.mcp.list", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(list["servers"][0]["name"], "a", "{list}");
}
