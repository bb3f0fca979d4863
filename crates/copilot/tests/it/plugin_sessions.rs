//! Plugins in sessions: their MCP servers, skills and agents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use allstop_tools::PermissionAnswer;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::plugins::{refusal, write, write_plugin};
use crate::support::{SOON, TestClient, TestServer};

/// An MCP server with the tool `greet`. It writes its process id into the file of its argument.
const MCP_SERVER: &str = r#"
import json, os, sys
with open(sys.argv[1], "w") as file: file.write(str(os.getpid()))
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
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
        send({"id": message["id"], "result": {"content": [{"type": "text", "text": "Hello."}]}})
    elif method is not None and "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
"#;

/// Each turn calls the tool of the server `a`.
const SCRIPT: &str = "turns:\n  - replies: [{calls: [{tool: a__greet, arguments: {}}]}, {text: Done.}]\n  - replies: [{calls: [{tool: a__greet, arguments: {}}]}, {text: Done.}]";

async fn server() -> TestServer {
    let unattended = Duration::from_mins(1);
    let config = "[permissions]\nallow = [\"a__greet\"]\n";
    TestServer::configured(config, SCRIPT, unattended, PermissionAnswer::Unanswered).await
}

/// Writes a plugin `p` with the MCP servers `a` and `b`, and returns its folder.
fn plugin(server: &TestServer) -> PathBuf {
    let folder = server.folder().join("direct");
    write_plugin(&folder, "1.0.0");
    let agent = "---\ndescription: Reviews.\n---\nReview the code.";
    write(&folder, "agents/reviewer.md", agent);
    write(&folder, "server.py", MCP_SERVER);
    let config = |name: &str| {
        let marker = marker(server, name);
        json!({ "command": "python3", "args": ["${PLUGIN_ROOT}/server.py", marker] })
    };
    let servers = json!({ "mcpServers": { "a": config("a"), "b": config("b") } });
    write(&folder, ".mcp.json", &servers.to_string());
    folder
}

/// File that this server writes when it starts.
fn marker(server: &TestServer, name: &str) -> PathBuf {
    server.folder().join(format!("{name}.pid"))
}

/// Process id of this server, after its start.
fn process(server: &TestServer, name: &str) -> Option<u32> {
    let text = fs::read_to_string(marker(server, name)).ok()?;
    text.parse().ok()
}

/// True if the process of a server runs.
fn run(server: &TestServer) -> bool {
    ["a", "b"].iter().any(|name| {
        let id = process(server, name).expect("it was started");
        let mut probe = Command::new("kill");
        let probe = probe.args(["-0", &id.to_string()]).stderr(Stdio::null());
        let probe = probe.status();
        probe.expect("a program").success()
    })
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, waiting)
        .await
        .unwrap_or_else(|_| panic!("not so: {what}"));
}

async fn statuses(client: &mut TestClient) -> Value {
    let session = json!({ "sessionId": "s" });
    let list = client.request("session.mcp.list", &session).await;
    let servers = list["servers"].as_array().expect("servers");
    let infos = servers.iter().map(|server| {
        let name = server["name"].as_str().expect("a name").to_owned();
        (name, server["status"].clone())
    });
    Value::Object(infos.collect())
}

/// Sends a message. The model then calls the tool `greet`. Returns the result of the call.
async fn greet(client: &mut TestClient) -> Value {
    let message = json!({ "sessionId": "s", "prompt": "greet" });
    let answer = client.request("session.sendAndWait", &message).await;
    assert_eq!(answer["outcome"], "completed", "{answer}");
    client.event("tool.execution_complete").await
}

async fn install(client: &mut TestClient, folder: &Path) {
    let source = json!({ "source": folder });
    client.request("plugins.install", &source).await;
}

#[tokio::test]
async fn servers_of_a_folder_start_with_the_first_message() {
    let server = server().await;
    let mut client = server.client();
    let folders = json!({ "pluginDirectories": [plugin(&server)], "disabledMcpServers": ["b"] });
    client.create("s", &folders).await;
    assert!(!marker(&server, "a").exists());
    let called = greet(&mut client).await;
    assert_eq!(called["success"], true, "{called}");
    assert!(marker(&server, "a").exists() && !marker(&server, "b").exists());
    let expected = json!({ "a": "connected", "b": "disabled" });
    assert_eq!(statuses(&mut client).await, expected);

    // The switch of a server opens the session again, with the servers of the plugin.
    let params = json!({ "sessionId": "s", "serverName": "b" });
    client.request("session.mcp.enable", &params).await;
    wait_until("b runs", || process(&server, "b").is_some()).await;
    server.close_sessions().await;
    wait_until("the servers end", || !run(&server)).await;
}

#[tokio::test]
async fn servers_start_when_a_client_asks_after_a_resume() {
    let server = server().await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let session = json!({ "sessionId": "s" });
    client.request("session.suspend", &session).await;
    let params = json!({
        "sessionId": "s",
        "pluginDirectories": [plugin(&server)],
        "disabledMcpServers": ["b"],
    });
    client.request("session.resume", &params).await;
    assert!(!marker(&server, "a").exists());
    let running = json!({ "sessionId": "s", "serverName": "a" });
    let is_running = "session.mcp.isServerRunning";
    let asking = async {
        while client.request(is_running, &running).await["running"] != true {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, asking).await.expect("the server starts");
    let expected = json!({ "a": "connected", "b": "disabled" });
    assert_eq!(statuses(&mut client).await, expected);
    assert!(!marker(&server, "b").exists());
}

#[tokio::test]
async fn parts_of_an_installed_plugin_are_in_each_session() {
    let server = server().await;
    let mut client = server.client();
    install(&mut client, &plugin(&server)).await;
    client.create("s", &json!({})).await;
    let session = json!({ "sessionId": "s" });
    let plugins = client.request("session.plugins.list", &session).await;
    let info = json!({ "name": "p", "marketplace": "", "enabled": true, "version": "1.0.0" });
    assert_eq!(plugins, json!({ "plugins": [info] }));
    let skills = client.request("session.skills.list", &session).await;
    assert_eq!(skills["skills"][0]["source"], "plugin", "{skills}");
    let found = client.request("mcp.discover", &json!({})).await;
    assert_eq!(found["servers"][0]["source"], "plugin", "{found}");
    let agents = client.request("session.agent.list", &session).await;
    assert!(agents.to_string().contains("reviewer"), "{agents}");
    let called = greet(&mut client).await;
    assert_eq!(called["success"], true, "{called}");
}

/// The commands of a removed plugin do not run any longer, also in a session that has used them.
#[tokio::test]
async fn removal_ends_the_servers_of_open_sessions() {
    let server = server().await;
    let (mut client, mut other) = (server.client(), server.client());
    install(&mut client, &plugin(&server)).await;
    client.create("s", &json!({})).await;
    assert_eq!(greet(&mut client).await["success"], true);
    let name = json!({ "name": "p" });
    other.request("plugins.uninstall", &name).await;
    wait_until("the servers end", || !run(&server)).await;
    let called = greet(&mut client).await;
    assert_eq!(called["success"], false, "{called}");
    let session = json!({ "sessionId": "s" });
    client.request("session.plugins.reload", &session).await;
    assert_eq!(statuses(&mut client).await, json!({}));
    let plugins = client.request("session.plugins.list", &session).await;
    assert_eq!(plugins, json!({ "plugins": [] }));
}

#[tokio::test]
async fn disabled_plugin_has_no_servers() {
    let server = server().await;
    let mut client = server.client();
    let market = server.folder().join("market");
    let catalog = json!({ "name": "m", "plugins": [{ "name": "p", "source": "./direct" }] });
    write(&market, "marketplace.json", &catalog.to_string());
    fs::rename(plugin(&server), market.join("direct")).expect("a folder");
    let source = json!({ "source": market });
    client.request("plugins.marketplaces.add", &source).await;
    client
        .request("plugins.install", &json!({ "source": "p@m" }))
        .await;
    // The session was opened before, and its servers have not started.
    client.create("s", &json!({})).await;
    let names = json!({ "names": ["p@m"] });
    client.request("plugins.disable", &names).await;
    assert_eq!(greet(&mut client).await["success"], false);
    let stopped = json!({ "a": "stopped", "b": "stopped" });
    assert_eq!(statuses(&mut client).await, stopped);
    let session = json!({ "sessionId": "s" });
    client.request("session.plugins.reload", &session).await;
    assert_eq!(statuses(&mut client).await, json!({}));
    assert!(!marker(&server, "a").exists() && !marker(&server, "b").exists());

    client.request("plugins.enable", &names).await;
    client.request("session.plugins.reload", &session).await;
    assert_eq!(greet(&mut client).await["success"], true);
}

/// Another server of the user may edit the settings after a session was opened.
#[tokio::test]
async fn servers_start_only_if_the_plugin_is_still_enabled() {
    let disabled = |text: &str| text.replace("\"enabled\": true", "\"enabled\": false");
    let broken = |text: &str| text[..text.len() / 2].to_owned();
    let edits: [&dyn Fn(&str) -> String; 2] = [&disabled, &broken];
    for edit in edits {
        let server = server().await;
        let mut client = server.client();
        install(&mut client, &plugin(&server)).await;
        client.create("s", &json!({})).await;
        let file = server.folder().join("settings/settings.json");
        let text = fs::read_to_string(&file).expect("a file");
        let edited = edit(&text);
        assert_ne!(edited, text);
        fs::write(&file, edited).expect("a file");
        assert_eq!(greet(&mut client).await["success"], false);
        assert!(!marker(&server, "a").exists() && !marker(&server, "b").exists());
    }
}

/// An unusable plugin or server does not prevent the start of a session.
#[tokio::test]
async fn unusable_parts_are_left_out_with_a_warning() {
    let server = server().await;
    let mut client = server.client();
    let folder = plugin(&server);
    let servers = json!({ "mcpServers": {
        "a": { "command": "python3" },
        "unset": { "command": "python3", "args": ["${ALLSTOP_TEST_UNSET}"] },
        "odd": { "command": "python3", "later": true },
    } });
    write(&folder, ".mcp.json", &servers.to_string());
    let own = json!({ "command": "/does/not/exist" });
    let params = json!({
        "pluginDirectories": ["relative", server.folder().join("missing"), folder],
        "mcpServers": { "a": own },
    });
    client.create("s", &params).await;
    for reason in [
        "absolute path",
        "cannot be read",
        "config.later",
        "another server has its name",
        "ALLSTOP_TEST_UNSET",
    ] {
        let warning = client.event("session.warning").await;
        let message = warning["message"].as_str().unwrap_or_default();
        assert!(message.contains(reason), "{reason}: {message}");
    }
    assert_eq!(statuses(&mut client).await, json!({ "a": "failed" }));
    let many = json!({ "sessionId": "t", "pluginDirectories": vec!["/p"; 65] });
    let refused = refusal(&mut client, "session.create", many).await;
    assert!(refused.contains("pluginDirectories"), "{refused}");
}
