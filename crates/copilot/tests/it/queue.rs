//! Waiting messages and slash commands.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

/// The turn of `one` waits for the answer of a handler.
const SCRIPT: &str = r"
turns:
  - when: one
    replies: [{calls: [{tool: ask, arguments: {}}]}, {text: Done.}]
  - when: soon
    replies: [{text: Done.}]
  - when: t
    replies: [{text: Next.}]
";

async fn of_session(client: &mut TestClient, method: &str) -> Value {
    client.request(method, &json!({ "sessionId": "s" })).await
}

async fn pending(client: &mut TestClient) -> Value {
    of_session(client, "session.queue.pendingItems").await
}

async fn texts(client: &mut TestClient) -> Vec<String> {
    let pending = pending(client).await;
    let items = pending["items"].as_array().expect("items");
    let texts = items.iter().map(|item| item["displayText"].as_str());
    texts.map(|text| text.expect("a text").to_owned()).collect()
}

async fn enqueue(client: &mut TestClient, command: &str) {
    let params = json!({ "sessionId": "s", "command": command });
    let answer = client.request("session.commands.enqueue", &params).await;
    assert_eq!(answer["queued"], true);
}

async fn respond(client: &mut TestClient, request: &Value, result: Value) -> Value {
    let params = json!({ "sessionId": "s", "requestId": request, "result": result });
    let method = "session.commands.respondToQueuedCommand";
    client.request(method, &params).await["success"].clone()
}

#[tokio::test]
async fn waiting_messages_are_listed_and_removed() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let tools = json!({ "tools": [{ "name": "ask" }] });
    client.create("s", &tools).await;
    let mut send = json!({ "sessionId": "s", "prompt": "one" });
    client.request("session.send", &send).await;
    let call = client.event("external_tool.requested").await;
    for prompt in ["two", "three", "four"] {
        send["prompt"] = prompt.into();
        client.request("session.send", &send).await;
    }
    enqueue(&mut client, "/five now").await;
    send["prompt"] = "soon".into();
    send["mode"] = "immediate".into();
    client.request("session.send", &send).await;
    let all = pending(&mut client).await;
    assert_eq!(all["steeringMessages"], json!(["soon"]));
    assert_eq!(all["items"][0]["kind"], "message", "{all}");
    assert_eq!(all["items"][3]["kind"], "command", "{all}");
    assert_eq!(
        texts(&mut client).await,
        ["two", "three", "four", "/five now"]
    );
    let remove = "session.queue.removeMostRecent";
    for left in [&["two", "three", "four"][..], &["two", "three"]] {
        let removed = of_session(&mut client, remove).await;
        assert_eq!(removed["removed"], true);
        assert_eq!(texts(&mut client).await, left);
    }
    let first = json!({ "sessionId": "s", "id": all["items"][0]["id"] });
    for is_there in [true, false] {
        let removed = client.request("session.queue.removeAt", &first).await;
        assert_eq!(removed["removed"], is_there);
    }
    of_session(&mut client, "session.queue.clear").await;
    assert_eq!(texts(&mut client).await, [""; 0]);
    // The running turn continues, and takes its message.
    let answer = json!({ "sessionId": "s", "requestId": call["requestId"], "result": "yes" });
    client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    client.event("session.idle").await;
    let has_pending = of_session(&mut client, "session.queue.hasPending").await;
    assert_eq!(has_pending["hasPending"], false);
    let seen = format!("{:?}", client.seen());
    assert!(seen.contains("Done.") && !seen.contains("Next."), "{seen}");
}

#[tokio::test]
async fn commands_are_executed_one_by_one() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let commands = json!({ "commands": [{ "name": "deploy" }] });
    client.create("s", &commands).await;
    for command in ["/one", "/deploy now", "/two", "/three"] {
        enqueue(&mut client, command).await;
    }
    let one = client.event("command.queued").await;
    assert_eq!(one["command"], "/one");
    assert_eq!(
        texts(&mut client).await,
        ["/deploy now", "/two", "/three"],
        "only one runs"
    );
    let not_handled = json!({ "handled": false });
    assert_eq!(
        respond(&mut client, &one["requestId"], not_handled).await,
        true
    );
    let deploy = client.event("command.execute").await;
    assert_eq!(
        (&deploy["commandName"], &deploy["args"]),
        (&json!("deploy"), &json!("now"))
    );
    let done = json!({ "sessionId": "s", "requestId": deploy["requestId"] });
    client
        .request("session.commands.handlePendingCommand", &done)
        .await;
    let two = client.event("command.queued").await;
    let stop = json!({ "handled": true, "stopProcessingQueue": true });
    assert_eq!(
        respond(&mut client, &two["requestId"], stop.clone()).await,
        true
    );
    assert_eq!(respond(&mut client, &two["requestId"], stop).await, false);
    client
        .take("the end of /two", |message| {
            let event = &message["params"]["event"];
            event["type"] == "command.completed" && event["data"]["requestId"] == two["requestId"]
        })
        .await;
    assert_eq!(texts(&mut client).await, ["/three"], "the queue is paused");
    enqueue(&mut client, "/four").await;
    assert_eq!(client.event("command.queued").await["command"], "/three");
    let wrong = json!({ "sessionId": "s", "command": "five" });
    let refused = client.answer("session.commands.enqueue", &wrong).await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
}
