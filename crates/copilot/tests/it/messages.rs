//! Messages: attachments, options that are not offered, and the order of idle events.

use serde_json::{Value, json};

use crate::support::TestServer;

const SCRIPT: &str = "
turns:
  - when: wait
    replies: [{text: Never., stall: first_token}]
  - when: hello
    replies: [{text: Hello.}]
";

#[tokio::test]
async fn attachments_are_shown_or_missed_aloud() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let attachments = json!([
        { "type": "file", "path": "/tmp/a.txt" },
        { "type": "blob", "mimeType": "text/plain", "data": "aGVsbG8gYmxvYg==", "displayName": "b" },
        { "type": "blob", "mimeType": "image/png", "data": "AAAA", "displayName": "c.png" },
        { "type": "extension_context", "data": { "x": 1 } },
    ]);
    let message = json!({ "sessionId": "s", "prompt": "hello", "attachments": attachments });
    let refused = client.answer("session.send", &message).await;
    assert!(
        refused["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("data"))
    );
    let mut message = message;
    message["attachments"][3] = json!({ "type": "extension_context", "displayName": "d" });
    client.request("session.send", &message).await;
    let user = client.event("user.message").await;
    let text = user["content"].as_str().expect("text");
    for said in [
        "Attached file: /tmp/a.txt",
        "Attached blob: b\nhello blob",
        "c.png (its content",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    for said in ["blob of type image/png: c.png", "extension_context: d"] {
        let warning = client.event("session.warning").await;
        let message = warning["message"].as_str().expect("text");
        assert!(message.contains(said), "{message}");
    }
}

#[tokio::test]
async fn options_without_effect_are_reported() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let provider = |more: Value| {
        let mut provider = json!({ "baseUrl": "http://127.0.0.1:9", "apiKey": "k" });
        for (name, value) in more.as_object().expect("an object") {
            provider[name] = value.clone();
        }
        json!({ "sessionId": "x", "model": "m", "provider": provider })
    };
    let params = provider(json!({ "apiKeyCommand": "x" }));
    let refused = client.answer("session.create", &params).await;
    let text = refused["error"]["message"].to_string();
    assert!(
        text.contains("apiKeyCommand") && text.contains("apiKey`"),
        "{text}"
    );
    let mut params =
        provider(json!({ "headers": { "X": "1" }, "maxOutputTokens": 5, "maxInputTokens": 9 }));
    params["reasoningEffort"] = "high".into();
    params["memory"] = json!({});
    client.request("session.create", &params).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let warning = client.event("session.warning").await;
        told.push(warning["message"].as_str().expect("text").to_owned());
    }
    for name in ["`provider.maxInputTokens`", "`provider.maxOutputTokens`"] {
        assert!(told.iter().any(|text| text.contains(name)), "{told:?}");
    }
    let message = json!({ "sessionId": "x", "prompt": "hi", "responseFormat": {} });
    let refused = client.answer("session.send", &message).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn tools_that_cannot_be_shown_are_refused() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    for (tools, said) in [
        (json!([{ "name": "" }]), "invalid"),
        (json!([{ "name": "bad name!" }]), "bad name!"),
        (json!([{ "name": "a" }, { "name": "a" }]), "twice"),
    ] {
        let params = json!({ "sessionId": "s", "tools": tools });
        let refused = client.answer("session.create", &params).await;
        let text = refused["error"]["message"].as_str().expect("an error");
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test]
async fn invalid_parameters_name_their_field() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let params = json!({ "sessionId": "s", "prompt": "hello", "timeoutMs": -1 });
    let refused = client.answer("session.sendAndWait", &params).await;
    let text = refused["error"]["message"].as_str().expect("an error");
    assert!(text.starts_with("`timeoutMs`: "), "{text}");
}

/// A client sends a message directly after the answer of an abort. The event `session.idle` of the aborted turn is then
/// not sent, because the client could take the event for the end of the new turn.
#[tokio::test]
async fn next_message_is_not_ended_by_the_idle_of_an_abort() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    for _ in 0..20 {
        let message = |prompt: &str| json!({ "sessionId": "s", "prompt": prompt });
        client.request("session.send", &message("wait")).await;
        client.event("assistant.turn_start").await;
        let session = json!({ "sessionId": "s" });
        client.request("session.abort", &session).await;
        client.request("session.send", &message("hello")).await;
        client.event("session.idle").await;
        let kinds = client.seen().iter().rev();
        let kinds = kinds.map(|message| &message["params"]["event"]["type"]);
        let kinds: Vec<_> = kinds.take_while(|kind| **kind != "user.message").collect();
        let answered = kinds.iter().any(|kind| **kind == "assistant.message");
        assert!(answered, "idle before the answer: {kinds:?}");
    }
    // If no message follows, the event `session.idle` is sent.
    let message = json!({ "sessionId": "s", "prompt": "wait" });
    client.request("session.send", &message).await;
    client.event("assistant.turn_start").await;
    client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    let idle = client.event("session.idle").await;
    assert_eq!(idle["aborted"], true);
}

/// A resumed session keeps its working directory.
#[tokio::test]
async fn resumed_session_works_in_its_folder() {
    let server = TestServer::new(
        "turns: [{replies: [{calls: [{tool: bash, arguments: {command: pwd && true}}]}, {text: There.}]}]",
    )
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path");
    let mut client = server.client();
    client
        .create("s", &json!({ "workingDirectory": path }))
        .await;
    let stop = json!({ "sessionId": "s", "extent": "session" });
    client.request("allstop.stop", &stop).await;
    let resume = json!({ "sessionId": "s", "requestPermission": true });
    client.request("session.resume", &resume).await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    client.request("session.send", &message).await;
    let asked = client.event("permission.requested").await;
    let answer = json!({
        "sessionId": "s",
        "requestId": asked["requestId"],
        "result": { "kind": "approve-once" },
    });
    let method = "session.permissions.handlePendingPermissionRequest";
    client.request(method, &answer).await;
    let done = client.event("tool.execution_complete").await;
    let content = done["result"]["content"].as_str().expect("output");
    assert!(content.contains(path.to_str().expect("text")), "{content}");
}

#[tokio::test]
async fn approval_once_is_not_one_for_the_session() {
    const CALL: &str = "{calls: [{tool: bash, arguments: {command: touch f}}]}";
    for (kind, expected) in [("approve-once", 2), ("approve-for-session", 1)] {
        let script = format!("turns: [{{replies: [{CALL}, {CALL}, {{text: Done.}}]}}]");
        let server = TestServer::new(&script).await;
        let mut client = server.client();
        client
            .create("s", &json!({ "requestPermission": true }))
            .await;
        let message = json!({ "sessionId": "s", "prompt": "go" });
        client.request("session.send", &message).await;
        let mut asked = 0;
        loop {
            let next = client.take("a question or the end", |message| {
                let kind = &message["params"]["event"]["type"];
                kind == "permission.requested" || kind == "session.idle"
            });
            let event = next.await["params"]["event"].take();
            if event["type"] == "session.idle" {
                break;
            }
            asked += 1;
            let answer = json!({
                "sessionId": "s",
                "requestId": event["data"]["requestId"],
                "result": { "kind": kind },
            });
            let method = "session.permissions.handlePendingPermissionRequest";
            client.request(method, &answer).await;
        }
        assert_eq!(asked, expected, "{kind}");
    }
}
