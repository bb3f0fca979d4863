//! Families of methods that change a session between its turns.

use std::fs;

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const TWO_TURNS: &str = "turns: [{replies: [{text: One.}]}, {replies: [{text: Two.}]}]";

/// Parameters of a method of the session `s`.
fn of(mut params: Value) -> Value {
    params["sessionId"] = "s".into();
    params
}

async fn refusal(client: &mut TestClient, method: &str, params: Value) -> String {
    let answer = client.answer(method, &of(params)).await;
    let message = answer["error"]["message"].as_str();
    message
        .unwrap_or_else(|| panic!("{method}: {answer}"))
        .to_owned()
}

async fn turn(client: &mut TestClient, prompt: &str) {
    let sent = client
        .request("session.sendAndWait", &of(json!({ "prompt": prompt })))
        .await;
    assert_eq!(sent["outcome"], "completed", "{sent}");
}

#[tokio::test]
async fn name_and_mode_outlast_the_open_session() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let refused = refusal(&mut client, "session.name.set", json!({ "name": " \n" })).await;
    assert!(refused.contains("empty"), "{refused}");
    client
        .request("session.name.set", &of(json!({ "name": "Mine" })))
        .await;
    assert_eq!(client.event("session.title_changed").await["title"], "Mine");
    let ignored = client
        .request("session.name.setAuto", &of(json!({ "summary": "Auto" })))
        .await;
    assert_eq!(ignored, json!({ "applied": false }));
    client
        .request("session.mode.set", &of(json!({ "mode": "plan" })))
        .await;
    let changed = client.event("session.mode_changed").await;
    assert_eq!(
        changed,
        json!({ "newMode": "plan", "previousMode": "interactive" })
    );
    client.request("session.detach", &of(json!({}))).await;

    client.request("session.resume", &of(json!({}))).await;
    let name = client.request("session.name.get", &of(json!({}))).await;
    assert_eq!(name, json!({ "name": "Mine" }));
    assert_eq!(
        client.request("session.mode.get", &of(json!({}))).await,
        "plan"
    );
}

#[tokio::test]
async fn workspace_keeps_the_plan_and_files_inside() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let absent = client.request("session.plan.read", &of(json!({}))).await;
    assert_eq!(
        (&absent["exists"], &absent["content"]),
        (&json!(false), &Value::Null)
    );
    for operation in ["create", "update"] {
        client
            .request("session.plan.update", &of(json!({ "content": operation })))
            .await;
        let changed = client.event("session.plan_changed").await;
        assert_eq!(changed, json!({ "operation": operation }));
    }
    let plan = client.request("session.plan.read", &of(json!({}))).await;
    assert_eq!(plan["content"], "update");
    client.request("session.plan.delete", &of(json!({}))).await;

    let file = json!({ "path": "notes/a.txt", "content": "text" });
    client
        .request("session.workspaces.createFile", &of(file))
        .await;
    let files = client
        .request("session.workspaces.listFiles", &of(json!({})))
        .await;
    assert_eq!(files, json!({ "files": ["notes/a.txt"] }));
    let path = of(json!({ "path": "notes/a.txt" }));
    let read = client.request("session.workspaces.readFile", &path).await;
    assert_eq!(read, json!({ "content": "text" }));
    for path in ["../a", "/etc/passwd", "a/../../b", ""] {
        let outside = json!({ "path": path, "content": "x" });
        let refused = refusal(&mut client, "session.workspaces.createFile", outside).await;
        assert!(
            refused.contains("workspace files directory"),
            "{path}: {refused}"
        );
    }
    // The workspace is removed together with the session.
    let snapshot = client
        .request("session.metadata.snapshot", &of(json!({})))
        .await;
    let folder = snapshot["workspacePath"]
        .as_str()
        .expect("a path")
        .to_owned();
    assert!(fs::exists(&folder).expect("a readable folder"));
    client.request("session.delete", &of(json!({}))).await;
    assert!(!fs::exists(&folder).expect("a readable folder"));
}

#[tokio::test]
async fn conversation_is_copied_and_cut_at_a_message() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    turn(&mut client, "first").await;
    turn(&mut client, "second").await;
    let prompts = |events: &Value| -> Vec<(String, String)> {
        let events = events["events"].as_array().expect("a list").iter();
        let messages = events.filter(|event| event["type"] == "user.message");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        messages
            .map(|event| (text(&event["id"]), text(&event["data"]["content"])))
            .collect()
    };
    let events = client.request("session.getMessages", &of(json!({}))).await;
    let second = prompts(&events)[1].0.clone();
    let unknown = refusal(&mut client, "sessions.fork", json!({ "toEventId": "none" })).await;
    assert!(unknown.contains("Event none not found"), "{unknown}");

    let fork = json!({ "toEventId": second, "name": "Copy" });
    let fork = client.request("sessions.fork", &of(fork)).await;
    let copy = json!({ "sessionId": fork["sessionId"] });
    client.request("session.resume", &copy).await;
    let copied = client.request("session.getMessages", &copy).await;
    let copied: Vec<String> = prompts(&copied).into_iter().map(|(_, text)| text).collect();
    assert_eq!(copied, ["first"]);
    assert_eq!(
        client.request("session.name.get", &copy).await["name"],
        "Copy"
    );

    let cut = json!({ "eventId": second });
    let cut = client.request("session.history.truncate", &of(cut)).await;
    assert!(cut["eventsRemoved"].as_u64() > Some(1), "{cut}");
    let events = client.request("session.getMessages", &of(json!({}))).await;
    assert_eq!(prompts(&events).len(), 1);
}

#[tokio::test]
async fn settings_change_between_turns() {
    let server =
        TestServer::new("turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]").await;
    let place = tempfile::tempdir().expect("a folder");
    let skill = place.path().join("greeting");
    fs::create_dir(&skill).expect("a folder");
    let text = "---\nname: greeting\ndescription: Greets.\n---\nSay hello.";
    fs::write(skill.join("SKILL.md"), text).expect("a file");
    let mut client = server.client();
    let agents = json!([{ "name": "reviewer", "displayName": "Reviewer", "prompt": "Review.", "tools": ["view"] }]);
    let more = json!({
        "customAgents": agents,
        "skillDirectories": [place.path()],
        "tools": [{ "name": "wait" }],
    });
    client.create("s", &more).await;

    let effort = json!({ "reasoningEffort": "high" });
    client
        .request("session.model.setReasoningEffort", &of(effort))
        .await;
    assert_eq!(
        client.event("session.model_change").await["reasoningEffort"],
        "high"
    );
    let provider = json!({
        "providers": [{ "name": "own", "baseUrl": "http://127.0.0.1:1", "apiKey": "k" }],
        "models": [{ "id": "m", "provider": "own", "name": "Model" }],
    });
    client.request("session.provider.add", &of(provider)).await;
    let switch = of(json!({ "modelId": "own/m" }));
    let switched = client.request("session.model.switchTo", &switch).await;
    assert_eq!(switched, json!({ "modelId": "own/m" }));
    let current = client
        .request("session.model.getCurrent", &of(json!({})))
        .await;
    assert_eq!(
        current,
        json!({ "modelId": "own/m", "reasoningEffort": "high" })
    );

    let unknown = refusal(
        &mut client,
        "session.agent.select",
        json!({ "name": "none" }),
    )
    .await;
    assert!(unknown.contains("unknown agent"), "{unknown}");
    client
        .request("session.agent.select", &of(json!({ "name": "reviewer" })))
        .await;
    let current = client
        .request("session.agent.getCurrent", &of(json!({})))
        .await;
    assert_eq!(current["agent"]["displayName"], "Reviewer", "{current}");
    client
        .request("session.agent.deselect", &of(json!({})))
        .await;

    let disable = of(json!({ "name": "greeting" }));
    client.request("session.skills.disable", &disable).await;
    let skills = client.request("session.skills.list", &of(json!({}))).await;
    assert_eq!(skills["skills"][0]["enabled"], false, "{skills}");
}

/// A running turn keeps its settings, and the request fails.
#[tokio::test]
async fn settings_of_a_running_turn_do_not_change() {
    let server =
        TestServer::new("turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]").await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    client
        .request("session.send", &of(json!({ "prompt": "wait" })))
        .await;
    client.event("external_tool.requested").await;
    let effort = json!({ "reasoningEffort": "low" });
    let refused = refusal(&mut client, "session.model.setReasoningEffort", effort).await;
    assert!(refused.contains("while the session works"), "{refused}");
    client.request("session.abort", &of(json!({}))).await;
    let current = client
        .request("session.model.getCurrent", &of(json!({})))
        .await;
    assert_eq!(current, json!({ "modelId": "script::test.yaml" }));
}

#[tokio::test]
async fn forms_and_commands_are_answered_by_a_client() {
    let server = TestServer::new(TWO_TURNS).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let form =
        json!({ "message": "Name?", "requestedSchema": { "type": "object", "properties": {} } });
    let refused = refusal(&mut client, "session.ui.elicitation", form.clone()).await;
    assert!(refused.contains("fills in forms"), "{refused}");

    let mut other = server.client();
    let more = json!({ "requestElicitation": true, "commands": [{ "name": "deploy" }] });
    let resumed = other.request("session.resume", &of(more)).await;
    assert_eq!(
        resumed["capabilities"]["ui"]["elicitation"], true,
        "{resumed}"
    );
    let changed = client.event("capabilities.changed").await;
    assert_eq!(changed["ui"]["elicitation"], true);

    let asked = client.send("session.ui.elicitation", &of(form)).await;
    let request = other.event("elicitation.requested").await;
    let result = json!({ "action": "accept", "content": { "name": "x" } });
    let answer = of(json!({ "requestId": request["requestId"], "result": result }));
    let method = "session.ui.handlePendingElicitation";
    assert_eq!(other.request(method, &answer).await["success"], true);
    assert_eq!(client.answer_to(asked).await["result"], result);
    assert_eq!(other.request(method, &answer).await["success"], false);

    let command = of(json!({ "commandName": "deploy", "args": "now" }));
    let executed = client.send("session.commands.execute", &command).await;
    let request = other.event("command.execute").await;
    assert_eq!(request["command"], "/deploy now");
    let done = of(json!({ "requestId": request["requestId"] }));
    other
        .request("session.commands.handlePendingCommand", &done)
        .await;
    assert_eq!(client.answer_to(executed).await["result"], json!({}));

    other.request("session.detach", &of(json!({}))).await;
    let changed = client.event("capabilities.changed").await;
    assert_eq!(changed["ui"]["elicitation"], false);
}

#[tokio::test]
async fn shutdown_stops_the_work_and_returns_its_receipt() {
    let server =
        TestServer::new("turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]").await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    client
        .request("session.send", &of(json!({ "prompt": "wait" })))
        .await;
    client.event("external_tool.requested").await;
    let ended = client
        .request("session.shutdown", &of(json!({ "type": "routine" })))
        .await;
    assert_eq!(
        client.event("session.shutdown").await["shutdownType"],
        "routine"
    );
    assert!(ended["receipt"].is_object(), "{ended}");
    let closed = refusal(&mut client, "session.mode.get", json!({})).await;
    assert!(closed.contains("not open"), "{closed}");
}
