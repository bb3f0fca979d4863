//! Invalid input from clients: the answers, and the later behaviour of the connection and of other connections.

use allstop_copilot::ServedConnectionEnd;
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const HELLO: &str = "turns: [{replies: [{text: Hello.}]}]";

/// Checks that the connection of the client still works.
async fn assert_serves(client: &mut TestClient) {
    let answer = client
        .request("ping", &json!({ "message": "still here" }))
        .await;
    assert_eq!(answer["message"], "pong: still here");
}

/// After these bytes, the server cannot find the start of the next message.
#[tokio::test]
async fn broken_frames_end_the_connection_with_a_reason() {
    let server = TestServer::new(HELLO).await;
    let mut neighbour = server.client();
    for bytes in [
        &b"garbage\r\n\r\n"[..],
        b"Content-Length: 10000000000\r\n\r\n",
        b"Content-Length: 99999999999999999999999999\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"Content-Length: two\r\n\r\n{}",
        b"Content-Length:\r\n\r\n{}",
        b"\r\n\r\n",
        b"\0\xff\xfe\r\n\r\n",
        &vec![b'x'; 100_000],
    ] {
        let mut client = server.client();
        client.write(bytes).await;
        let answer = client.take("the reason", |message| message.get("error").is_some());
        let answer = answer.await;
        assert_eq!(answer["error"]["code"], -32700, "{answer}");
        assert_eq!(answer["id"], Value::Null, "{answer}");
        let end = client.ended().await;
        assert!(matches!(end, ServedConnectionEnd::Malformed(_)), "{end:?}");
        assert_serves(&mut neighbour).await;
    }
}

/// Only the frame with the wrong body is refused.
#[tokio::test]
async fn wrong_messages_are_refused_alone() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    for (body, code) in [
        (&b"{"[..], -32700),
        (b"\xff\xfe{}", -32700),
        (b"\"\xc3\x28\"", -32700),
        (b"null", -32600),
        (b"7", -32600),
        (b"\"text\"", -32600),
        (b"{}", -32600),
        (b"[]", -32600),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#,
            -32600,
        ),
    ] {
        client.write(&allstop_jsonrpc::encode_frame(body)).await;
        let refused = |message: &Value| message.get("error").is_some();
        let answer = client.take("a refusal", refused).await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        assert_serves(&mut client).await;
    }
}

/// Wrong types of parameters are refused, for every method with parameters.
#[tokio::test]
async fn wrong_parameters_are_refused() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    for (method, params) in [
        ("session.create", json!({ "sessionId": 7 })),
        (
            "session.create",
            json!({ "sessionId": "t", "tools": "all" }),
        ),
        ("session.create", json!({ "sessionId": "t", "tools": [{}] })),
        (
            "session.create",
            json!({ "sessionId": "t", "provider": { "type": "other" } }),
        ),
        ("session.resume", json!({})),
        ("session.send", json!({ "sessionId": "s" })),
        ("session.send", json!({ "sessionId": "s", "prompt": ["a"] })),
        (
            "session.send",
            json!({ "sessionId": "unknown", "prompt": "a" }),
        ),
        (
            "session.sendAndWait",
            json!({ "sessionId": "s", "prompt": "a", "timeoutMs": -1 }),
        ),
        ("session.abort", json!({})),
        ("session.abort", json!({ "sessionId": null })),
        ("session.tasks.cancel", json!({ "sessionId": "s" })),
        ("session.getMessages", json!({ "sessionId": "unknown" })),
        ("allstop.cancelToolCall", json!({ "sessionId": "s" })),
        (
            "allstop.stop",
            json!({ "sessionId": "s", "extent": "everything" }),
        ),
        (
            "allstop.stop",
            json!({ "sessionId": "s", "extend": "session" }),
        ),
        (
            "allstop.preview",
            json!({ "sessionId": "s", "toolcallId": "c" }),
        ),
        (
            "allstop.cancelToolCall",
            json!({ "sessionId": "s", "toolCallId": "c", "why": "x" }),
        ),
        (
            "session.tools.handlePendingToolCall",
            json!({ "sessionId": "s" }),
        ),
        ("session.tools.handlePendingToolCall", json!([])),
    ] {
        let answer = client.answer(method, &params).await;
        assert_eq!(
            answer["error"]["code"], -32602,
            "{method} {params}: {answer}"
        );
    }
    let everything = json!({ "sessionId": "s", "extent": "everything" });
    let answer = client.answer("allstop.stop", &everything).await;
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("`extent`") && text.contains("turn_and_background"),
        "{answer}"
    );
    let misspelt = json!({ "sessionId": "s", "extend": "session" });
    let answer = client.answer("allstop.stop", &misspelt).await;
    let text = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("`extend`") && text.contains("`extent`"),
        "{answer}"
    );
    for method in [
        "session.nothing",
        "session.tasks.nothing",
        "",
        "allstop.nothing",
    ] {
        let answer = client.answer(method, &json!({ "sessionId": "s" })).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    let answer = client.request("session.sendAndWait", &message).await;
    assert_eq!(answer["response"]["data"]["content"], "Hello.", "{answer}");
}

#[tokio::test]
async fn ignored_parameters_cause_one_warning_each() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let message = json!({
        "sessionId": "s", "prompt": "hello", "requiredTool": "view", "prepend": false, "source": null,
    });
    for _ in 0..2 {
        client.request("session.sendAndWait", &message).await;
        client.event("session.idle").await;
    }
    let options = json!({ "sessionId": "s", "verbosity": "low", "coauthorEnabled": false });
    client.request("session.options.update", &options).await;
    client
        .take("the second warning", |message| {
            message["params"]["event"]["data"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("verbosity"))
        })
        .await;
    let warnings = client.seen().iter().filter_map(|message| {
        let event = &message["params"]["event"];
        let is_warning = event["type"] == "session.warning";
        is_warning.then(|| event["data"]["message"].as_str().expect("a text"))
    });
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        [
            "`requiredTool` of `session.sendAndWait` is not offered and has no effect",
            "`verbosity` of `session.options.update` is not offered and has no effect",
        ]
    );
}

/// A change of the settings opens the session again, and a resume may follow its close. The clients already know the
/// warning then.
#[tokio::test]
async fn warnings_about_ignored_parameters_are_not_repeated() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let message = json!({ "sessionId": "s", "prompt": "hello", "requiredTool": "view" });
    client.request("session.sendAndWait", &message).await;
    let effort = json!({ "sessionId": "s", "reasoningEffort": "high" });
    client
        .request("session.model.setReasoningEffort", &effort)
        .await;
    client.request("session.sendAndWait", &message).await;
    let session = json!({ "sessionId": "s" });
    client.request("session.detach", &session).await;
    client.request("session.resume", &session).await;
    client.request("session.sendAndWait", &message).await;
    client
        .request(
            "session.options.update",
            &json!({ "sessionId": "s", "verbosity": "low" }),
        )
        .await;
    client
        .take("the last warning", |message| {
            message["params"]["event"]["data"]["message"]
                .as_str()
                .is_some_and(|text| text.contains("verbosity"))
        })
        .await;
    let warnings = client
        .seen()
        .iter()
        .filter(|message| message["params"]["event"]["type"] == "session.warning");
    assert_eq!(warnings.count(), 2, "{:?}", client.seen());
}

/// While a request is in progress, its id cannot be used for another request.
#[tokio::test]
async fn id_in_flight_is_refused() {
    let server =
        TestServer::new("turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}]}]").await;
    let mut client = server.client();
    let tools = json!([{ "name": "wait" }]);
    client.create("s", &json!({ "tools": tools })).await;
    let params = json!({ "sessionId": "s", "prompt": "wait" });
    let id = client.send("session.sendAndWait", &params).await;
    client.event("external_tool.requested").await;
    let ping = json!({ "jsonrpc": "2.0", "id": id, "method": "ping", "params": {} });
    client.message(&ping).await;
    let refused = client.answer_to(id).await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    client.request("session.abort", &params).await;
    let answer = client.answer_to(id).await;
    assert_eq!(answer["result"]["outcome"], "aborted", "{answer}");
    client.message(&ping).await;
    assert!(client.answer_to(id).await["result"].is_object());
}

#[tokio::test]
async fn answer_to_nothing_has_no_effect() {
    let server = TestServer::new(HELLO).await;
    let mut client = server.client();
    for answer in [
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": "x", "error": { "code": 1, "message": "no" } }),
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": 1, "message": "no" } }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {}, "error": {} }),
        json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": 99 } }),
        json!({ "jsonrpc": "2.0", "method": "nothing" }),
    ] {
        client.message(&answer).await;
    }
    assert_serves(&mut client).await;
    assert_eq!(client.untaken(), &[] as &[Value]);
}

/// A client sends half a frame and closes the connection. The server then ends the connection, too.
#[tokio::test]
async fn half_a_frame_ends_with_its_client() {
    let server = TestServer::new(HELLO).await;
    for half in ["Content-Le", "Content-Length: 100\r\n\r\n{\"jsonrpc\""] {
        let mut client = server.client();
        assert_serves(&mut client).await;
        assert!(client.write(half.as_bytes()).await);
        assert_eq!(client.end().await, ServedConnectionEnd::Closed);
    }
}

/// If an object has a reserved key, the JSON library parses the string value of this key as JSON, and its nesting limit
/// starts at zero again. Many nested keys would overflow the stack of the process. A handler that sends such an answer
/// fails, but its turn continues.
#[tokio::test]
async fn reserved_keys_are_refused() {
    let script = "turns: [{replies: [{calls: [{tool: wait, arguments: {}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    let mut deep = "1".to_owned();
    for _ in 0..200 {
        let text = deep.replace('\\', r"\u005c").replace('"', r"\u0022");
        let (open, close) = ("[".repeat(120), "]".repeat(120));
        deep = format!(r#"{open}{{"$serde_json::private::RawValue":"{text}"}}{close}"#);
    }
    for (method, member) in [
        ("ping", "message"),
        ("session.create", "tools"),
        ("session.tools.handlePendingToolCall", "result"),
    ] {
        let params = format!(r#"{{"sessionId":"s","{member}":{deep}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#);
        let frame = allstop_jsonrpc::encode_frame(body.as_bytes());
        assert!(client.write(&frame).await);
        let answer = client
            .take("a refusal", |message| message["id"] == "a")
            .await;
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }

    client
        .create(
            "s",
            &json!({ "tools": [{ "name": "wait" }], "hooks": true }),
        )
        .await;
    let message = json!({ "sessionId": "s", "prompt": "go" });
    let waiting = client.send("session.sendAndWait", &message).await;
    let is_hook = |message: &Value| message["params"]["hookType"] == "sessionStart";
    let hook = client.take("the first hook", is_hook).await;
    let answer = json!({ "jsonrpc": "2.0", "id": hook["id"], "result": {} });
    client.message(&answer).await;
    let is_hook = |message: &Value| message["params"]["hookType"] == "userPromptSubmitted";
    let hook = client.take("a hook", is_hook).await;
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{deep}}}"#, hook["id"]);
    assert!(
        client
            .write(&allstop_jsonrpc::encode_frame(body.as_bytes()))
            .await
    );
    // The refused answer ends the wait for the client's hook.
    let is_hook = |message: &Value| message["params"]["hookType"] == "userPromptTransformed";
    client.take("the next hook", is_hook).await;
    client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(client.answer_to(waiting).await["result"]["aborted"], true);
}
