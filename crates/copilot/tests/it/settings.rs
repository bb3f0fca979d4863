//! Settings and states of a session for clients.

use std::time::Duration;

use allstop_tools::PermissionAnswer;
use serde_json::json;

use crate::support::TestServer;

#[tokio::test]
async fn settings_are_answered_as_the_sdks_parse_them() {
    let script = "turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    let session = json!({ "sessionId": "s" });
    let mode = client.request("session.mode.get", &session).await;
    assert_eq!(mode, "interactive");
    let interest = json!({ "sessionId": "s", "eventType": "mcp.oauth_required" });
    let registered = client
        .request("session.eventLog.registerInterest", &interest)
        .await;
    assert!(registered["handle"].is_string(), "{registered}");
    let model = client.request("session.model.getCurrent", &session).await;
    assert_eq!(model["modelId"], "script::test.yaml", "{model}");

    let left_out = json!({
        "sessionId": "s", "skipCustomInstructions": true, "customAgentsLocalOnly": true, "coauthorEnabled": false,
        "manageScheduleEnabled": false, "installedPlugins": [], "includedBuiltinSkills": [],
    });
    let updated = client.request("session.options.update", &left_out).await;
    assert_eq!(updated, json!({ "success": true }));
    // An answer of success would claim that the session has plugins.
    let asked = json!({ "sessionId": "s", "installedPlugins": [{ "name": "p" }] });
    let refused = client.answer("session.options.update", &asked).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");

    let activity = "session.metadata.activity";
    let idle = json!({ "abortable": false, "hasActiveWork": false });
    assert_eq!(client.request(activity, &session).await, idle);
    let message = json!({ "sessionId": "s", "prompt": "wait" });
    client.request("session.send", &message).await;
    client.event("external_tool.requested").await;
    let busy = json!({ "abortable": true, "hasActiveWork": true });
    assert_eq!(client.request(activity, &session).await, busy);
    let processing = client
        .request("session.metadata.isProcessing", &session)
        .await;
    assert_eq!(processing, json!({ "processing": true }));
    client.request("session.abort", &session).await;
    client.event("session.idle").await;
    assert_eq!(client.request(activity, &session).await, idle);
}

/// A client receives a warning if it requests a part that no session offers. Otherwise it receives no warning.
#[tokio::test]
async fn parts_that_are_not_offered_are_reported() {
    let server = TestServer::new("turns: [{replies: [{text: Hello.}]}]").await;
    let mut client = server.client();
    let asked = json!({
        "hookDirectories": ["/hooks"],
        "customAgents": [{ "name": "a", "prompt": "b", "skills": ["c"] }],
    });
    client.create("s", &asked).await;
    for part in ["hookDirectories", "customAgents[a].skills"] {
        let warning = client.event("session.warning").await;
        let message = warning["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{warning}");
    }
    let nothing =
        json!({ "mcpServers": {}, "customAgents": [], "systemMessage": { "content": "x" } });
    client.create("t", &nothing).await;
    let message = json!({ "sessionId": "t", "prompt": "hello" });
    client.request("session.sendAndWait", &message).await;
    client.event("session.idle").await;
    let is_warning =
        |message: &&serde_json::Value| message["params"]["event"]["type"] == "session.warning";
    assert_eq!(client.untaken().iter().find(is_warning), None);
}

/// If no client can be asked about a call, the call is denied, unless the server's options allow the call.
#[tokio::test]
async fn call_that_no_client_answers_gets_the_default_answer() {
    let script = "turns: [{replies: [{calls: [{tool: create, arguments: {path: a, file_text: b}}]}, {text: Done.}]}]";
    for (default_answer, is_allowed) in [
        (PermissionAnswer::deny(), false),
        (PermissionAnswer::AllowOnce, true),
    ] {
        let server = TestServer::with(script, Duration::from_mins(1), default_answer).await;
        let mut client = server.client();
        client.create("s", &json!({})).await;
        let message = json!({ "sessionId": "s", "prompt": "write" });
        client.request("session.send", &message).await;
        let completed = client.event("tool.execution_complete").await;
        assert_eq!(completed["success"], is_allowed, "{completed}");
    }
}

/// Creates a server that allows calls without a question if no client answers, and denies `rm` by a rule.
async fn server_with_rule(command: &str) -> TestServer {
    let rules = "[permissions]\ndeny = ['shell:rm']";
    let calls = json!([{ "tool": "bash", "arguments": { "command": command } }]);
    let script = json!({ "turns": [{ "replies": [{ "calls": calls }, { "text": "Done." }] }] });
    let (script, default_answer) = (script.to_string(), PermissionAnswer::AllowOnce);
    TestServer::configured(rules, &script, Duration::from_mins(1), default_answer).await
}

/// Commands, each with true if this server allows the command without a question.
const COMMANDS: [(&str, bool); 3] = [
    ("env rm f", false),
    ("$(echo rm) f", false),
    ("touch f", true),
];

#[tokio::test]
async fn answer_in_advance_allows_nothing_that_a_rule_may_deny() {
    for (command, is_allowed) in COMMANDS {
        let server = server_with_rule(command).await;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("f"), "").expect("a file");
        let mut client = server.client();
        client
            .create("s", &json!({ "workingDirectory": folder.path() }))
            .await;
        let message = json!({ "sessionId": "s", "prompt": "go" });
        client.request("session.send", &message).await;
        let completed = client.event("tool.execution_complete").await;
        assert_eq!(completed["success"], is_allowed, "{command}: {completed}");
        let is_named = completed.to_string().contains("shell:rm");
        assert_eq!(is_named, !is_allowed, "{completed}");
        assert!(folder.path().join("f").exists(), "{command}: it ran");
    }
}

/// The client that would answer the permission question leaves, and another client stays attached.
#[tokio::test]
async fn question_of_a_client_that_left_is_not_allowed_against_a_rule() {
    for (command, is_allowed) in COMMANDS {
        let server = server_with_rule(command).await;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("f"), "").expect("a file");
        let (mut asked, mut other) = (server.client(), server.client());
        let choice = json!({ "workingDirectory": folder.path(), "requestPermission": true });
        asked.create("s", &choice).await;
        let session = json!({ "sessionId": "s" });
        other.request("session.resume", &session).await;
        let message = json!({ "sessionId": "s", "prompt": "go" });
        asked.request("session.send", &message).await;
        asked.event("permission.requested").await;
        asked.request("session.detach", &session).await;
        let completed = other.event("tool.execution_complete").await;
        assert_eq!(completed["success"], is_allowed, "{command}: {completed}");
        assert!(folder.path().join("f").exists(), "{command}: it ran");
    }
}

#[tokio::test]
async fn command_model_names_the_model() {
    let server = TestServer::new("replies: [{text: Not used.}]").await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let invoke = json!({ "sessionId": "s", "name": "model" });
    let answer = client.request("session.commands.invoke", &invoke).await;
    assert_eq!(answer["kind"], "text", "{answer}");
    let text = answer["text"].as_str().expect("a text");
    assert!(text.starts_with("model: "), "{text}");
}
