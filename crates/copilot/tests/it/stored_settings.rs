//! Settings that clients store for all sessions.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: Done.}]}]";

async fn refusal(client: &mut TestClient, method: &str, params: Value) -> String {
    let answer = client.answer(method, &params).await;
    let message = answer["error"]["message"].as_str();
    message
        .unwrap_or_else(|| panic!("{method}: {answer}"))
        .to_owned()
}

async fn statuses(client: &mut TestClient, session: &str) -> Vec<String> {
    client.create(session, &json!({})).await;
    let list = client
        .request("session.mcp.list", &json!({ "sessionId": session }))
        .await;
    let servers = list["servers"].as_array().expect("servers");
    let texts = servers.iter().map(|server| {
        let text = |name: &str| server[name].as_str().expect("a text");
        format!("{} {}", text("name"), text("status"))
    });
    texts.collect()
}

#[tokio::test]
async fn stored_servers_are_servers_of_new_sessions() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let config = json!({ "type": "local", "command": "/does/not/exist", "args": ["a"] });
    let params = |config: &Value| json!({ "name": "mine", "config": config });
    client.request("mcp.config.add", &params(&config)).await;
    let list = client.request("mcp.config.list", &json!({})).await;
    assert_eq!(list, json!({ "servers": { "mine": config } }));
    assert_eq!(statuses(&mut client, "s1").await, ["mine failed"]);

    let names = json!({ "names": ["mine"] });
    client.request("mcp.config.disable", &names).await;
    assert_eq!(statuses(&mut client, "s2").await, ["mine disabled"]);
    client.request("mcp.config.enable", &names).await;
    assert_eq!(statuses(&mut client, "s3").await, ["mine failed"]);
    let file = server.folder().join("settings/settings.json");
    assert_eq!(fs::metadata(file).expect("a file").mode() & 0o777, 0o600);

    client
        .request("mcp.config.remove", &json!({ "name": "mine" }))
        .await;
    assert_eq!(statuses(&mut client, "s4").await, Vec::<String>::new());
}

#[tokio::test]
async fn unusable_servers_are_not_stored() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let usable = json!({ "url": "http://127.0.0.1:1/mcp", "oauthGrantType": "client_credentials" });
    client
        .request("mcp.config.add", &json!({ "name": "a", "config": usable }))
        .await;
    for (method, name, config, reason) in [
        ("mcp.config.add", "a", usable.clone(), "exists"),
        ("mcp.config.update", "b", usable.clone(), "not stored"),
        (
            "mcp.config.add",
            "b",
            json!({}),
            "neither `command` nor `url`",
        ),
        (
            "mcp.config.add",
            "b",
            json!({ "url": "ftp://127.0.0.1/mcp" }),
            "begins with http:// or https://",
        ),
        (
            "mcp.config.add",
            "b",
            json!({ "type": "http", "command": "x" }),
            "`config.url` is missing",
        ),
        (
            "mcp.config.add",
            "b",
            json!({ "command": "x", "deferTools": true }),
            "deferTools` is not offered",
        ),
        (
            "mcp.config.add",
            "b",
            json!({ "command": "x", "args": [1] }),
            "`config.args",
        ),
        (
            "mcp.config.add",
            "b",
            json!({ "command": "x", "headers": { "a": "b" } }),
            "cannot be used",
        ),
    ] {
        let params = json!({ "name": name, "config": config });
        let refused = refusal(&mut client, method, params).await;
        assert!(refused.contains(reason), "{config}: {refused}");
    }
    let refused = refusal(&mut client, "mcp.config.disable", json!({ "names": ["b"] })).await;
    assert!(refused.contains("not stored"), "{refused}");
    let list = client.request("mcp.config.list", &json!({})).await;
    assert_eq!(list, json!({ "servers": { "a": usable } }));
}

#[tokio::test]
async fn defaults_of_the_user_apply_without_a_choice() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let skill = server.folder().join(".github/skills/greet");
    fs::create_dir_all(&skill).expect("a folder");
    let text = "---\nname: greet\ndescription: Greets.\n---\nHello.";
    fs::write(skill.join("SKILL.md"), text).expect("a file");
    let set = json!({ "settings": { "enableConfigDiscovery": true } });
    client.request("user.settings.set", &set).await;
    for (session, params, count) in [
        ("s1", json!({}), 1),
        ("s2", json!({ "enableConfigDiscovery": false }), 0),
    ] {
        client.create(session, &params).await;
        let list = client
            .request("session.skills.list", &json!({ "sessionId": session }))
            .await;
        let skills = list["skills"].as_array().expect("skills");
        assert_eq!(skills.len(), count, "{session}: {list}");
    }
    client.request("user.settings.reload", &json!({})).await;
    let settings = client.request("user.settings.get", &json!({})).await;
    assert_eq!(
        settings["settings"]["enableConfigDiscovery"]["isDefault"],
        false
    );
    let unknown = json!({ "settings": { "theme": "dark" } });
    let refused = refusal(&mut client, "user.settings.set", unknown).await;
    assert!(refused.contains("theme"), "{refused}");
}

#[tokio::test]
async fn invalid_file_is_reported() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let folder = server.folder().join("settings");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("settings.json"), "{").expect("a file");
    for (method, params) in [
        ("user.settings.reload", json!({})),
        ("session.create", json!({ "sessionId": "s" })),
        ("mcp.config.remove", json!({ "name": "a" })),
    ] {
        let refused = refusal(&mut client, method, params).await;
        assert!(refused.contains("settings.json"), "{method}: {refused}");
    }
    let text = fs::read_to_string(folder.join("settings.json"));
    assert_eq!(text.expect("a file"), "{");
}

/// A request after the shutdown gets an answer, because some SDKs would wait for it for ever.
#[tokio::test]
async fn requests_after_a_shutdown_are_refused() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.request("runtime.shutdown", &json!({})).await;
    let refused = client.answer("user.settings.reload", &json!({})).await;
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    client.request("runtime.shutdown", &json!({})).await;
}
