//! Values that a client cannot have meant: the server refuses them, and the message names the field.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const HELLO: &str = "turns: [{replies: [{text: Hello.}]}]";

/// Checks that the request is refused, and that the message contains these texts.
async fn assert_refused(client: &mut TestClient, method: &str, params: &Value, texts: &[&str]) {
    let answer = client.answer(method, params).await;
    assert_eq!(
        answer["error"]["code"], -32602,
        "{method} {params}: {answer}"
    );
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    for text in texts {
        assert!(message.contains(text), "{method} {params}: {message}");
    }
}

/// Wrong MCP servers, and the texts in the refusal.
fn wrong_servers() -> Vec<(Value, [&'static str; 2])> {
    vec![
        (json!({ "command": "" }), [".command` is empty", "program"]),
        (json!({ "command": " " }), [".command` is empty", "program"]),
        (
            json!({ "type": "http", "url": "" }),
            [".url` is \"\"", "https://"],
        ),
        (
            json!({ "type": "http", "url": "example.com/mcp" }),
            [".url` is \"example.com/mcp\"", "https://"],
        ),
        (
            json!({ "type": "http", "url": "http:///mcp" }),
            [".url` is \"http:///mcp\"", "https://"],
        ),
        (
            json!({ "type": "websocket", "command": "x" }),
            [".type` is \"websocket\"", "\"http\""],
        ),
        (
            json!({ "command": "x", "timeout": 0 }),
            [".timeout` is 0", "milliseconds"],
        ),
    ]
}

#[tokio::test]
async fn unusable_mcp_servers_are_refused() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let usable = json!({ "name": "a", "config": { "command": "x" } });
    client.request("mcp.config.add", &usable).await;
    for (config, texts) in wrong_servers() {
        for (method, params) in [
            ("mcp.config.add", json!({ "name": "b", "config": config })),
            (
                "mcp.config.update",
                json!({ "name": "a", "config": config }),
            ),
            (
                "session.mcp.startServer",
                json!({ "sessionId": "s", "serverName": "b", "config": config }),
            ),
            (
                "session.mcp.restartServer",
                json!({ "sessionId": "s", "serverName": "b", "config": config }),
            ),
        ] {
            assert_refused(&mut client, method, &params, &texts).await;
        }
    }
    let nameless = json!({ "sessionId": "s", "serverName": "", "config": { "command": "x" } });
    assert_refused(
        &mut client,
        "session.mcp.startServer",
        &nameless,
        &["`serverName` is missing"],
    )
    .await;
    let list = client.request("mcp.config.list", &json!({})).await;
    assert_eq!(list, json!({ "servers": { "a": { "command": "x" } } }));
    let list = client
        .request("session.mcp.list", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(list, json!({ "servers": [] }));
}
