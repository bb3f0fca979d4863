//! The history of a session, compared with the events that the clients received while the session ran.

use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "
turns:
  - when: echo
    replies:
      - {text: I echo., calls: [{tool: echo, arguments: {text: a}}, {tool: echo, arguments: {text: b}}]}
      - {text: Echoed.}
  - when: fail
    replies:
      - error: {status: 400, message: no}
  - when: hello
    replies: [{text: Hello.}]
";

/// Answers the next request for the client's tool.
async fn answer_one(client: &mut TestClient) {
    let request = client.event("external_tool.requested").await;
    let answer = json!({ "sessionId": "s", "requestId": request["requestId"], "result": "done" });
    let method = "session.tools.handlePendingToolCall";
    assert_eq!(client.request(method, &answer).await["success"], true);
}

async fn history(client: &mut TestClient) -> Vec<Value> {
    let session = json!({ "sessionId": "s" });
    let mut answer = client.request("session.getMessages", &session).await;
    serde_json::from_value(answer["events"].take()).expect("events")
}

/// The history contains every persisted event that was sent, with an equal id, in the same order and with the same
/// parent. This includes the events of stopped and failed turns. Only the model's text in a rolled-back turn is
/// missing.
#[tokio::test]
async fn history_has_every_event_that_is_not_ephemeral() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    let tools = json!([{ "name": "echo" }]);
    client.create("s", &json!({ "tools": tools })).await;
    let message = |prompt: &str| json!({ "sessionId": "s", "prompt": prompt });

    let completed = client.send("session.sendAndWait", &message("echo")).await;
    answer_one(&mut client).await;
    answer_one(&mut client).await;
    let answer = client.answer_to(completed).await;
    assert_eq!(answer["result"]["outcome"], "completed", "{answer}");
    let originating = answer["result"]["messageId"].clone();

    let aborted = client
        .send("session.sendAndWait", &message("echo again"))
        .await;
    answer_one(&mut client).await;
    client.event("external_tool.requested").await;
    client.request("session.abort", &message("")).await;
    let answer = client.answer_to(aborted).await;
    assert_eq!(answer["result"]["aborted"], true, "{answer}");
    let rolled_back = answer["result"]["messageId"].clone();

    let failed = client.answer("session.sendAndWait", &message("fail")).await;
    assert!(failed["error"].is_object(), "{failed}");
    client
        .request("session.sendAndWait", &message("hello"))
        .await;

    for _turn in 0..4 {
        client.event("assistant.idle").await;
    }
    client.event("session.idle").await;
    let live: Vec<Value> = client
        .seen()
        .iter()
        .map(|message| message["params"]["event"].clone())
        .filter(|event| !event.is_null() && event["ephemeral"] != true)
        .collect();
    let history = history(&mut client).await;

    let mut rest = history.iter();
    for event in &live {
        if event["type"] == "assistant.message"
            && event["data"]["originatingMessageId"] == rolled_back
        {
            continue;
        }
        let found = rest.by_ref().find(|entry| entry["id"] == event["id"]);
        let kinds: Vec<_> = history.iter().map(|entry| &entry["type"]).collect();
        let found = found.unwrap_or_else(|| panic!("{event} is not in {kinds:?}"));
        assert_eq!(found["type"], event["type"]);
    }
    for (before, event) in history.iter().zip(history.iter().skip(1)) {
        assert_eq!(event["parentId"], before["id"], "{event}");
    }
    let answers = history
        .iter()
        .filter(|event| event["type"] == "assistant.message");
    let first = answers.clone().next().expect("an answer");
    assert_eq!(first["data"]["originatingMessageId"], originating);
    let count = |kind: &str| history.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("abort"), 1, "the turn that failed was not aborted");
    // Both turns keep their completed steps, so both have a receipt with the effect on the conversation.
    assert_eq!((count("session.error"), count("allstop.receipt")), (1, 2));
    assert_eq!(
        count("tool.execution_start"),
        count("tool.execution_complete")
    );
}

/// The client has the acknowledgement of a message that was added to the turn. The history therefore contains the
/// message even if the turn was rolled back.
#[tokio::test]
async fn added_message_of_a_stopped_turn_is_sent() {
    let script = "
turns:
  - replies:
      - {calls: [{tool: act, arguments: {}}]}
      - {text: Never., stall: first_token}
";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "act" }] }))
        .await;
    let first = json!({ "sessionId": "s", "prompt": "first" });
    client.request("session.send", &first).await;
    let request = client.event("external_tool.requested").await;
    let second = json!({ "sessionId": "s", "prompt": "second", "mode": "immediate" });
    client.request("session.send", &second).await;
    let answer = json!({
        "sessionId": "s",
        "requestId": request["requestId"],
        "result": "acted",
    });
    client
        .request("session.tools.handlePendingToolCall", &answer)
        .await;
    client
        .take("the second message", |message| {
            message["params"]["event"]["data"]["content"] == "second"
        })
        .await;
    client
        .request("session.abort", &json!({ "sessionId": "s" }))
        .await;
    let history = history(&mut client).await;
    let messages = history
        .iter()
        .filter(|event| event["type"] == "user.message");
    let texts: Vec<_> = messages.map(|event| &event["data"]["content"]).collect();
    assert_eq!(texts, ["first", "second"]);
}

/// Regression: the numbers of these events began again with each opening of the session, and so did their ids.
#[tokio::test]
async fn ids_of_notes_are_new_after_a_resume() {
    let server = TestServer::new("turns: [{replies: [{text: Done.}]}]").await;
    let mut client = server.client();
    let named = |name: &str| json!({ "sessionId": "s", "name": name });
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        if ids.is_empty() {
            client.create("s", &json!({})).await;
        } else {
            let resume = json!({ "sessionId": "s", "suppressResumeEvent": true });
            client.request("session.resume", &resume).await;
        }
        client.request("session.name.set", &named(name)).await;
        let event = client
            .take("the title", |message| {
                message["params"]["event"]["type"] == "session.title_changed"
            })
            .await;
        ids.push(event["params"]["event"]["id"].clone());
        let of = json!({ "sessionId": "s" });
        client.request("session.detach", &of).await;
    }
    assert_ne!(ids[0], ids[1]);
}

/// The history of a session that was closed and resumed has the changes of its model, with the ids that were sent.
#[tokio::test]
async fn changes_of_the_model_are_in_the_history_after_a_resume() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let session = json!({ "sessionId": "s" });
    let message = json!({ "sessionId": "s", "prompt": "hello" });
    for effort in ["high", "low"] {
        client.request("session.sendAndWait", &message).await;
        let effort = json!({ "sessionId": "s", "reasoningEffort": effort });
        client
            .request("session.model.setReasoningEffort", &effort)
            .await;
    }
    let is_change = |event: &&Value| event["type"] == "session.model_change";
    let before = history(&mut client).await;
    assert_eq!(before.iter().filter(is_change).count(), 2, "{before:?}");
    client.request("session.detach", &session).await;

    client.request("session.resume", &session).await;
    let after = history(&mut client).await;
    let place = |event: &&Value| (event["type"].clone(), event["id"].clone());
    let kept = |events: &[Value]| {
        let events = events.iter();
        let kept = events.filter(|event| event["type"] != "session.resume");
        kept.map(|event| place(&event)).collect::<Vec<_>>()
    };
    assert_eq!(kept(&after), kept(&before));

    // A later change follows the earlier ones, and outlasts another close.
    let effort = json!({ "sessionId": "s", "reasoningEffort": "medium" });
    client
        .request("session.model.setReasoningEffort", &effort)
        .await;
    client.request("session.detach", &session).await;
    client.request("session.resume", &session).await;
    let changes = history(&mut client).await.into_iter();
    let changes = changes.filter(|event| is_change(&event));
    let efforts = changes.map(|event| event["data"]["reasoningEffort"].clone());
    assert_eq!(efforts.collect::<Vec<_>>(), ["high", "low", "medium"]);
}
