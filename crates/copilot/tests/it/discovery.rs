//! Skills, agents and instructions in the folders of a project.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::TestServer;

const SCRIPT: &str = "turns: [{replies: [{text: Done.}]}]";

fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(file, text).expect("a file");
}

fn project(folder: &Path) {
    let skill = "---\nname: greet\ndescription: Greets.\n---\nHello.";
    write(folder, ".github/skills/greet/SKILL.md", skill);
    let agent = "---\ndescription: Reviews.\ntools: view\n---\nReview the code.";
    write(folder, ".github/agents/reviewer.agent.md", agent);
    write(folder, "AGENTS.md", "Be brief.");
}

#[tokio::test]
async fn definitions_of_a_project_are_found() {
    let server = TestServer::new(SCRIPT).await;
    let folder = server.folder().canonicalize().expect("a folder");
    project(&folder);
    let mut client = server.client();
    let projects = json!({ "projectPaths": [folder] });
    let skills = client.request("skills.discover", &projects).await;
    assert_eq!(skills["skills"][0]["name"], "greet", "{skills}");
    assert_eq!(skills["skills"][0]["enabled"], true);
    let agents = client.request("agents.discover", &projects).await;
    assert_eq!(agents["agents"][0]["name"], "reviewer", "{agents}");
    assert_eq!(agents["agents"][0]["tools"], json!(["view"]));
    let instructions = client.request("instructions.discover", &projects).await;
    assert_eq!(
        instructions["sources"][0]["content"], "Be brief.",
        "{instructions}"
    );
    for (method, end) in [
        ("skills.getDiscoveryPaths", ".github/skills"),
        ("agents.getDiscoveryPaths", ".github/agents"),
        ("instructions.getDiscoveryPaths", "AGENTS.md"),
    ] {
        let paths = client.request(method, &projects).await;
        assert_eq!(
            paths["paths"][0]["path"],
            json!(folder.join(end)),
            "{paths}"
        );
    }
    let disabled = json!({ "disabledSkills": ["greet"] });
    client
        .request("skills.config.setDisabledSkills", &disabled)
        .await;
    let skills = client.request("skills.discover", &projects).await;
    assert_eq!(skills["skills"][0]["enabled"], false);
    client
        .create("s", &json!({ "enableConfigDiscovery": true }))
        .await;
    let list = client
        .request("session.skills.list", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(list["skills"][0]["enabled"], false, "{list}");
}

#[tokio::test]
async fn agents_of_the_working_directory_answer_in_sessions() {
    let server = TestServer::new(SCRIPT).await;
    project(server.folder());
    let mut client = server.client();
    let searched = json!({ "enableConfigDiscovery": true, "agent": "reviewer" });
    client.create("s", &searched).await;
    let of_session = json!({ "sessionId": "s" });
    let current = client
        .request("session.agent.getCurrent", &of_session)
        .await;
    assert_eq!(current["agent"]["name"], "reviewer", "{current}");
    let unsearched = json!({ "sessionId": "other", "agent": "reviewer" });
    let refused = client.answer("session.create", &unsearched).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    client.create("other", &json!({})).await;
    let list = client
        .request("session.agent.list", &json!({ "sessionId": "other" }))
        .await;
    assert_eq!(list["agents"], Value::Array(Vec::new()), "{list}");
}

#[tokio::test]
async fn servers_of_the_configuration_and_of_clients_are_found() {
    let config = "[mcp.servers.configured]\ncommand = '/does/not/exist'\n";
    let waits = std::time::Duration::from_mins(1);
    let unanswered = allstop_tools::PermissionAnswer::Unanswered;
    let server = TestServer::configured(config, SCRIPT, waits, unanswered).await;
    let mut client = server.client();
    let stored = json!({ "name": "stored", "config": { "url": "http://127.0.0.1:1/mcp" } });
    client.request("mcp.config.add", &stored).await;
    let same = json!({ "name": "configured", "config": { "command": "x" } });
    let refused = client.answer("mcp.config.add", &same).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let found = client.request("mcp.discover", &json!({})).await;
    let server = |name: &str, kind: &str| json!({ "name": name, "type": kind, "source": "user", "enabled": true });
    let expected = [server("configured", "stdio"), server("stored", "http")];
    assert_eq!(found["servers"], json!(expected));
}

#[tokio::test]
async fn invalid_agent_file_causes_a_warning() {
    let server = TestServer::new(SCRIPT).await;
    write(
        server.folder(),
        ".github/agents/broken.agent.md",
        "---\ndescription: [\n---\nReview.",
    );
    let mut client = server.client();
    client
        .create("s", &json!({ "enableConfigDiscovery": true }))
        .await;
    let warning = client.event("session.warning").await;
    let text = warning["message"].as_str().expect("a text");
    assert!(text.contains("broken.agent.md"), "{text}");
}
