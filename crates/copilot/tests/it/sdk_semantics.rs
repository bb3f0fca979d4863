//! Behaviour that the official runtime defines by its answers and events.

use allstop_copilot::ConnectionAccess;
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const HELLO: &str = "turns: [{replies: [{text: Hello.}]}]";

#[tokio::test]
async fn ping_and_models_have_the_types_of_the_sdks() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let pong = client.request("ping", &json!({ "message": "hi" })).await;
    assert_eq!(pong["message"], "pong: hi");
    assert!(
        pong["timestamp"].is_string() && pong["protocolVersion"].is_u64(),
        "{pong}"
    );
    let models = client.request("models.list", &json!({})).await;
    let capabilities = &models["models"][0]["capabilities"];
    assert!(capabilities["supports"]["vision"].is_boolean(), "{models}");
    assert!(
        capabilities["limits"]["max_context_window_tokens"].is_u64(),
        "{models}"
    );
}

#[tokio::test]
async fn wrong_token_is_an_authentication_failure() {
    let server = TestServer::new(HELLO).await;
    for params in [json!({}), json!({ "token": "wrong" })] {
        let mut client = server.client_with(ConnectionAccess::Token("secret".into()));
        let answer = client.answer("connect", &params).await;
        let message = answer["error"]["message"].as_str().expect("an error");
        assert!(message.contains("AUTHENTICATION_FAILED"), "{message}");
    }
}

#[tokio::test]
async fn abort_keeps_the_message_and_the_call() {
    let script = "turns: [{replies: [{calls: [{id: c, tool: ask, arguments: {}}]}, {text: Done.}]}, {replies: [{text: On.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "ask" }] }))
        .await;
    client
        .request(
            "session.send",
            &json!({ "sessionId": "s", "prompt": "first" }),
        )
        .await;
    client.event("external_tool.requested").await;
    let aborted = client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(
        aborted["receipt"]["conversation"], "kept_completed_steps",
        "{aborted}"
    );
    let history = client
        .request("session.getMessages", &json!({ "sessionId": "s" }))
        .await;
    let end = history["events"].as_array().expect("events").iter();
    let mut end = end.filter(|event| event["type"] == "tool.execution_complete");
    let message = &end.next().expect("the end of the call")["data"]["error"]["message"];
    let interrupted = "The execution of this tool, or a previous tool was interrupted.";
    assert!(
        message
            .as_str()
            .is_some_and(|text| text.starts_with(interrupted)),
        "{message}"
    );
}

#[tokio::test]
async fn question_without_a_handler_waits_for_the_program() {
    let script = "turns: [{replies: [{calls: [{id: c, tool: bash, arguments: {command: 'true'}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    client
        .request(
            "session.send",
            &json!({ "sessionId": "s", "prompt": "run it" }),
        )
        .await;
    let asked = client.event("permission.requested").await;
    let answer = json!({
        "sessionId": "s",
        "requestId": asked["requestId"],
        "result": { "kind": "reject" },
    });
    let answered = client
        .request(
            "session.permissions.handlePendingPermissionRequest",
            &answer,
        )
        .await;
    assert_eq!(answered["success"], true);
    let end = client.event("tool.execution_complete").await;
    let message = end["error"]["message"].as_str().expect("an error");
    assert!(
        message.ends_with("The user rejected this tool call."),
        "{message}"
    );
}

#[tokio::test]
async fn unavailable_user_is_a_denied_permission() {
    let script = "turns: [{replies: [{calls: [{id: c, tool: bash, arguments: {command: 'true'}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "requestPermission": true }))
        .await;
    client
        .request(
            "session.send",
            &json!({ "sessionId": "s", "prompt": "run it" }),
        )
        .await;
    let asked = client.event("permission.requested").await;
    let answer = json!({
        "sessionId": "s",
        "requestId": asked["requestId"],
        "result": { "kind": "user-not-available" },
    });
    client
        .request(
            "session.permissions.handlePendingPermissionRequest",
            &answer,
        )
        .await;
    let end = client.event("tool.execution_complete").await;
    let expected = "Permission denied and could not request permission from user";
    let message = end["error"]["message"].as_str().expect("an error");
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn handler_result_names_its_kind() {
    let script =
        "turns: [{replies: [{calls: [{id: c, tool: ask, arguments: {}}]}, {text: Done.}]}]";
    for kind in ["rejected", "denied"] {
        let server = TestServer::new(script).await;
        let mut client = server.client();
        client
            .create("s", &json!({ "tools": [{ "name": "ask" }] }))
            .await;
        client
            .request("session.send", &json!({ "sessionId": "s", "prompt": "x" }))
            .await;
        let asked = client.event("external_tool.requested").await;
        let answer = json!({
            "sessionId": "s",
            "requestId": asked["requestId"],
            "result": { "textResultForLlm": "no", "resultType": kind },
        });
        client
            .request("session.tools.handlePendingToolCall", &answer)
            .await;
        let end = client.event("tool.execution_complete").await;
        assert_eq!(end["error"], json!({ "message": "no", "code": kind }));
        client.event("session.idle").await;
        let history = client
            .request("session.getMessages", &json!({ "sessionId": "s" }))
            .await;
        assert!(
            history
                .to_string()
                .contains(&format!("\"code\":\"{kind}\"")),
            "{history}"
        );
    }
}

#[tokio::test]
async fn history_contains_the_model_the_attachments_and_the_resume() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let attachment =
        json!({ "type": "file", "path": "/tmp/x", "lineRange": { "start": 1, "end": 2 } });
    let message = json!({
        "sessionId": "s",
        "prompt": "read it",
        "agentMode": "plan",
        // An SDK could not read an event with a selection that has no range.
        "attachments": [attachment, { "type": "selection", "filePath": "/tmp/x", "text": "x" }],
    });
    client.request("session.send", &message).await;
    client.event("pending_messages.modified").await;
    let live = client.event("user.message").await;
    let info = client.event("session.usage_info").await;
    assert!(info["currentTokens"].as_u64() > Some(0), "{info}");
    client.event("session.idle").await;
    client
        .request(
            "session.resume",
            &json!({ "sessionId": "s", "continuePendingWork": true }),
        )
        .await;
    let resumed = client.event("session.resume").await;
    assert_eq!(resumed["continuePendingWork"], true);
    let history = client
        .request("session.getMessages", &json!({ "sessionId": "s" }))
        .await;
    let of_kind = |kind: &str| {
        let mut events = history["events"].as_array().expect("events").iter();
        events.find(|event| event["type"] == kind).expect(kind)["data"].clone()
    };
    assert!(of_kind("session.start")["selectedModel"].is_string());
    assert_eq!(of_kind("user.message"), live);
    let mut named = attachment;
    named["displayName"] = json!("x");
    assert_eq!(live["attachments"], json!([named]));
    assert_eq!(live["agentMode"], "plan");
    assert_eq!(of_kind("session.resume"), resumed);
}

#[tokio::test]
async fn sessions_announce_their_lifecycle_to_all_clients() {
    let server = TestServer::new(HELLO).await;
    let (mut client, mut other) = (server.client(), server.client());
    other.request("ping", &json!({})).await;
    client.create("s", &json!({})).await;
    client
        .request("session.send", &json!({ "sessionId": "s", "prompt": "hi" }))
        .await;
    client.event("session.idle").await;
    client
        .request("session.delete", &json!({ "sessionId": "s" }))
        .await;
    for kind in ["session.created", "session.updated", "session.deleted"] {
        let told = other
            .take(kind, |message| {
                message["method"] == "session.lifecycle" && message["params"]["type"] == kind
            })
            .await;
        assert_eq!(told["params"]["sessionId"], "s");
    }
}

#[tokio::test]
async fn tools_excluded_from_the_default_agent_are_not_offered() {
    let script =
        "turns: [{replies: [{calls: [{id: c, tool: secret, arguments: {}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    let session = json!({
        "tools": [{ "name": "secret" }],
        "defaultAgent": { "excludedTools": ["secret"] },
    });
    client.create("s", &session).await;
    client
        .request("session.send", &json!({ "sessionId": "s", "prompt": "x" }))
        .await;
    let end = client.event("tool.execution_complete").await;
    assert_eq!(end["success"], false, "{end}");
}

#[tokio::test]
async fn rejection_without_a_reason_ends_the_turn() {
    let script =
        "turns: [{replies: [{calls: [{id: c, tool: ask, arguments: {}}]}, {text: Never.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "ask" }] }))
        .await;
    let prompt = json!({ "sessionId": "s", "prompt": "x" });
    client.request("session.send", &prompt).await;
    let asked = client.event("external_tool.requested").await;
    let answer = json!({
        "sessionId": "s",
        "requestId": asked["requestId"],
        "result": { "textResultForLlm": "no", "resultType": "rejected" },
    });
    client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    let idle = client.event("session.idle").await;
    assert_eq!(idle["aborted"], true);
}

/// Two calls in one step of the model.
const TWO_CALLS: &str = "turns: [{replies: [{calls: [{id: c1, tool: one, arguments: {}}, \
                         {id: c2, tool: two, arguments: {}}]}, {text: Never.}]}]";

/// Starts two parallel calls, and rejects the first. Returns the client and the request id of the second call.
async fn reject_first_of_two(server: &TestServer) -> (TestClient, Value) {
    let mut client = server.client();
    let tools = json!({ "tools": [{ "name": "one" }, { "name": "two" }] });
    client.create("s", &tools).await;
    let prompt = json!({ "sessionId": "s", "prompt": "x" });
    client.request("session.send", &prompt).await;
    let asked = [
        client.event("external_tool.requested").await,
        client.event("external_tool.requested").await,
    ];
    let request_of = |tool: &str| {
        let found = asked.iter().find(|asked| asked["toolName"] == tool);
        found.expect(tool)["requestId"].clone()
    };
    let rejection = json!({
        "sessionId": "s",
        "requestId": request_of("one"),
        "result": { "textResultForLlm": "no", "resultType": "rejected" },
    });
    client
        .request("session.tools.handlePendingToolCall", &rejection)
        .await;
    let end = client.event("tool.execution_complete").await;
    assert_eq!(
        (&end["toolCallId"], &end["error"]["code"]),
        (&json!("c1"), &json!("rejected"))
    );
    (client, request_of("two"))
}

#[tokio::test]
async fn rejection_ends_the_turn_after_the_parallel_calls() {
    let server = TestServer::new(TWO_CALLS).await;
    let (mut client, request) = reject_first_of_two(&server).await;
    let answer = json!({ "sessionId": "s", "requestId": request, "result": "done" });
    let answered = client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    assert_eq!(answered["success"], true);
    let end = client.event("tool.execution_complete").await;
    assert_eq!(
        (&end["toolCallId"], &end["success"]),
        (&json!("c2"), &json!(true))
    );
    assert_eq!(client.event("session.idle").await["aborted"], true);
}

#[tokio::test]
async fn abort_does_not_wait_for_the_calls_beside_a_rejection() {
    let server = TestServer::new(TWO_CALLS).await;
    let (mut client, _request) = reject_first_of_two(&server).await;
    let aborted = client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    // The handler of the second call may still run in the program.
    assert_eq!(aborted["receipt"]["quiet"], false, "{aborted}");
    let end = client.event("tool.execution_complete").await;
    assert_eq!(end["toolCallId"], "c2");
    assert_eq!(client.event("session.idle").await["aborted"], true);
}

#[tokio::test]
async fn foreground_session_needs_a_terminal() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    let session = json!({ "sessionId": "s" });
    let answer = client.answer("session.setForeground", &session).await;
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(
        message.contains("Not running in TUI+server mode"),
        "{message}"
    );
}

#[tokio::test]
async fn open_without_a_context_finds_no_session() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    for params in [json!({}), json!({ "kind": "resumeLast" })] {
        let opened = client.request("sessions.open", &params).await;
        assert_eq!(opened, json!({ "status": "not_found" }));
    }
    let create = json!({ "kind": "create" });
    let refused = client.answer("sessions.open", &create).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn approved_session_asks_no_client() {
    let script = "turns: [{replies: [{calls: [{id: c, tool: bash, arguments: {command: 'true'}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let session = json!({ "sessionId": "s" });
    let mode = client
        .request("session.permissions.getMode", &session)
        .await;
    assert_eq!(mode["mode"], "manual");
    let all = json!({ "sessionId": "s", "enabled": true });
    client
        .request("session.permissions.setApproveAll", &all)
        .await;
    let mode = client
        .request("session.permissions.getMode", &session)
        .await;
    assert_eq!(mode["mode"], "allow-all");
    let prompt = json!({ "sessionId": "s", "prompt": "run it" });
    client.request("session.send", &prompt).await;
    let end = client.event("tool.execution_complete").await;
    assert_eq!(end["success"], true, "{end}");
}

#[tokio::test]
async fn event_log_is_read_in_pages() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let read = json!({ "sessionId": "s", "max": 1 });
    let first = client.request("session.eventLog.read", &read).await;
    assert_eq!(first["events"][0]["type"], "session.start");
    assert_eq!(
        (&first["cursorStatus"], &first["hasMore"]),
        (&json!("ok"), &json!(false))
    );
    let next = json!({ "sessionId": "s", "cursor": first["cursor"], "waitMs": 20_000 });
    let waiting = client.send("session.eventLog.read", &next).await;
    let prompt = json!({ "sessionId": "s", "prompt": "hi" });
    client.request("session.send", &prompt).await;
    let page = client.answer_to(waiting).await;
    assert_eq!(
        page["result"]["events"][0]["type"], "user.message",
        "{page}"
    );
    let lost = json!({ "sessionId": "s", "cursor": "9999" });
    let lost = client.request("session.eventLog.read", &lost).await;
    assert_eq!(lost["cursorStatus"], "expired");
}

#[tokio::test]
async fn commands_of_a_client_are_announced() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let mut other = server.client();
    let commands = json!([{ "name": "deploy", "description": "Deploys." }]);
    other
        .request(
            "session.resume",
            &json!({ "sessionId": "s", "commands": commands }),
        )
        .await;
    let told = client.event("commands.changed").await;
    assert_eq!(told["commands"], commands);
}

#[tokio::test]
async fn absent_parts_have_empty_lists() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let session = json!({ "sessionId": "s" });
    for (method, list) in [
        ("session.schedule.list", "entries"),
        ("session.plugins.list", "plugins"),
        ("session.extensions.list", "extensions"),
    ] {
        let answer = client.request(method, &session).await;
        assert_eq!(answer[list], json!([]), "{method}");
    }
    let refused = client.answer("session.extensions.reload", &session).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let unknown = client.answer("session.extensions.unknown", &session).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
}
