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
            (
                "session.create",
                json!({ "sessionId": "t", "mcpServers": { "b": config } }),
            ),
            (
                "session.create",
                json!({
                    "sessionId": "t",
                    "customAgents": [{ "name": "n", "prompt": "p", "mcpServers": { "b": config } }],
                }),
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

#[tokio::test]
async fn impossible_parameters_of_a_session_are_refused() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("open", &json!({})).await;
    let agent = json!({ "name": "a", "prompt": "p" });
    let provider = |url: &str| json!({ "name": "p", "baseUrl": url });
    let cases = [
        (json!({ "model": "" }), ["`model` is empty", "omit"]),
        (json!({ "model": " " }), ["`model` is empty", "omit"]),
        (
            json!({ "reasoningEffort": "extreme" }),
            ["reasoningEffort", "xhigh"],
        ),
        (
            json!({ "tools": [{ "name": "t", "parameters": "text" }] }),
            ["`tools[t].parameters`", "JSON Schema"],
        ),
        (
            json!({ "tools": [{ "name": "t", "parameters": [] }] }),
            ["`tools[t].parameters`", "JSON Schema"],
        ),
        (
            json!({ "systemMessage": { "mode": "prepend", "content": "x" } }),
            ["`systemMessage.mode`", "customize"],
        ),
        (
            json!({ "customAgents": [{ "name": "", "prompt": "p" }] }),
            ["`customAgents[0].name` is empty", "name"],
        ),
        (
            json!({ "customAgents": [agent, agent] }),
            ["`customAgents`", "\"a\""],
        ),
        (
            json!({ "commands": [{ "name": "" }] }),
            ["`commands[0].name` is empty", "name"],
        ),
        (
            json!({ "commands": [{ "name": "deploy" }, { "name": "deploy" }] }),
            ["`commands`", "\"deploy\""],
        ),
        (
            json!({ "mcpServers": { "": { "command": "x" } } }),
            ["`mcpServers`", "empty name"],
        ),
        (
            json!({ "providers": [provider("http://127.0.0.1:1"), provider("http://127.0.0.1:2")] }),
            ["`providers`", "\"p\""],
        ),
        (
            json!({ "providers": [{ "name": "", "baseUrl": "http://127.0.0.1:1" }] }),
            ["`providers[0].name` is empty", "name"],
        ),
        (
            json!({ "providers": [provider("ftp://127.0.0.1")] }),
            ["`providers[p].baseUrl` is \"ftp://127.0.0.1\"", "https://"],
        ),
        (
            json!({ "model": "m", "provider": { "baseUrl": "" } }),
            ["`provider.baseUrl` is \"\"", "https://"],
        ),
        (
            json!({ "models": [{ "id": "", "provider": "p" }], "providers": [provider("http://127.0.0.1:1")] }),
            ["`models[0].id` is empty", "id"],
        ),
        (
            json!({ "sessionLimits": { "maxAiCredits": -1 } }),
            ["sessionLimits.maxAiCredits", "negative"],
        ),
        (
            json!({ "sessionLimits": { "maxAiCredits": 0 } }),
            ["sessionLimits.maxAiCredits", "omit the limit"],
        ),
        (
            json!({ "infiniteSessions": { "bufferExhaustionThreshold": -0.5 } }),
            ["bufferExhaustionThreshold", "between 0 and 1"],
        ),
        (
            json!({ "agent": "", "enableConfigDiscovery": true }),
            ["`agent` is empty", "omit"],
        ),
    ];
    for (more, texts) in cases {
        for (method, id) in [("session.create", "t"), ("session.resume", "open")] {
            let mut params = more.clone();
            params["sessionId"] = id.into();
            assert_refused(&mut client, method, &params, &texts).await;
        }
    }
    let list = client.request("session.list", &json!({})).await;
    let sessions = list["sessions"].as_array().expect("sessions");
    assert_eq!(sessions.len(), 1, "{list}");
}

#[tokio::test]
async fn impossible_changes_of_an_open_session_are_refused() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    for (method, mut params, texts) in [
        (
            "session.model.switchTo",
            json!({ "modelId": " " }),
            ["`modelId` is empty", "name"],
        ),
        (
            "session.options.update",
            json!({ "model": "" }),
            ["`model` is empty", "omit"],
        ),
        (
            "session.provider.add",
            json!({ "providers": [{ "name": "p", "baseUrl": "localhost:1" }] }),
            ["`providers[p].baseUrl` is \"localhost:1\"", "http://"],
        ),
    ] {
        params["sessionId"] = "s".into();
        assert_refused(&mut client, method, &params, &texts).await;
    }
}

#[tokio::test]
async fn working_directory_must_be_an_existing_folder() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("open", &json!({})).await;
    let file = server.folder().join("file");
    std::fs::write(&file, "text").expect("a file");
    let (file, missing) = (json!(file), json!(server.folder().join("missing")));
    for (folder, reason) in [
        (json!(""), "absolute path"),
        (json!("src"), "absolute path"),
        (json!("~"), "absolute path"),
        (missing, "does not exist"),
        (file, "is not a folder"),
    ] {
        for (method, id) in [
            ("session.create", "t"),
            ("session.resume", "open"),
            ("session.options.update", "open"),
            ("session.metadata.setWorkingDirectory", "open"),
        ] {
            let params = json!({ "sessionId": id, "workingDirectory": folder });
            assert_refused(
                &mut client,
                method,
                &params,
                &["`workingDirectory`", reason],
            )
            .await;
        }
    }
    // A refused change leaves the session open.
    let message = json!({ "sessionId": "open", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message).await;
    assert_eq!(answer["response"]["data"]["content"], "Hello.", "{answer}");
    let list = client.request("session.list", &json!({})).await;
    let sessions = list["sessions"].as_array().expect("sessions");
    assert_eq!(sessions.len(), 1, "{list}");
}

#[tokio::test]
async fn folders_with_skills_must_exist() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("open", &json!({})).await;
    let file = server.folder().join("file");
    std::fs::write(&file, "text").expect("a file");
    let missing = server.folder().join("missing");
    for (folder, reason) in [(&missing, "does not exist"), (&file, "is not a folder")] {
        for (method, id) in [("session.create", "t"), ("session.resume", "open")] {
            let folders = json!([server.folder(), folder]);
            let params = json!({ "sessionId": id, "skillDirectories": folders });
            let texts = ["`skillDirectories[1]`", reason];
            assert_refused(&mut client, method, &params, &texts).await;
        }
    }
    // A session without skills does not use the folders.
    let unused = json!({ "skillDirectories": [missing], "enableSkills": false });
    client.create("t", &unused).await;
}
