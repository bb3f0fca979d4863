//! The server's answers to extensions of the protocol, checked with the published schema of the extensions.

use std::time::{Duration, Instant};

use allstop_testkit::PublishedSchema;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::TestServer;

const SCRIPT: &str = "
turns:
  - when: wait
    replies:
      - {calls: [{tool: wait, arguments: {}}, {tool: wait, arguments: {}}]}
      - {text: Waited.}
  - when: hello
    replies: [{text: Hello.}]
";

/// Checks a value with a definition of the published schema.
#[track_caller]
fn assert_valid(definition: &str, value: &Value) {
    let checked = PublishedSchema::of_definition("copilot", definition).check(value);
    assert!(checked.is_ok(), "{definition}: {checked:?}");
}

#[tokio::test]
async fn answers_are_valid_under_the_published_schema() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    let session = json!({ "sessionId": "s" });
    let message = |prompt: &str| json!({ "sessionId": "s", "prompt": prompt });

    let answer = client
        .request("session.sendAndWait", &message("hello"))
        .await;
    assert_eq!(answer["outcome"], "completed");
    assert_valid("session.sendAndWait.result", &answer);

    let waiting = client.send("session.sendAndWait", &message("wait")).await;
    let request = client.event("external_tool.requested").await;
    client.event("external_tool.requested").await;
    let preview = client.request("allstop.preview", &session).await;
    assert_valid("allstop.preview.result", &preview);
    assert_eq!(preview["receipt"]["preview"], true, "{preview}");
    let call = json!({ "sessionId": "s", "toolCallId": request["toolCallId"] });
    assert_valid("allstop.cancelToolCall.params", &call);
    for is_first in [true, false] {
        let cancelled = client.request("allstop.cancelToolCall", &call).await;
        assert_eq!(cancelled["cancelled"], is_first, "{cancelled}");
        assert_valid("allstop.cancelToolCall.result", &cancelled);
    }
    let timed_out = json!({ "sessionId": "s", "prompt": "hello", "timeoutMs": 1 });
    let answer = client.request("session.sendAndWait", &timed_out).await;
    assert_eq!(answer["outcome"], "timed_out", "{answer}");
    assert_valid("session.sendAndWait.result", &answer);
    assert_valid(
        "session.abort.result",
        &client.request("session.abort", &session).await,
    );
    let answer = client.answer_to(waiting).await;
    assert_eq!(answer["result"]["outcome"], "aborted", "{answer}");
    assert_valid("session.sendAndWait.result", &answer["result"]);
    assert_valid(
        "allstop.receipt.event",
        &client.event("allstop.receipt").await,
    );

    let interrupted = client.request("session.interruptMainTurn", &session).await;
    assert_valid("session.interruptMainTurn.result", &interrupted);
    let pending = client
        .request("session.tasks.waitForPending", &session)
        .await;
    assert_valid("session.tasks.waitForPending.result", &pending);
    let cancelled = json!({ "sessionId": "s", "id": "unknown" });
    let cancelled = client.request("session.tasks.cancel", &cancelled).await;
    assert_valid("session.tasks.cancel.result", &cancelled);
    for extent in ["turn", "turn_and_background", "session"] {
        let stop = json!({ "sessionId": "s", "extent": extent });
        assert_valid("allstop.stop.params", &stop);
        assert_valid(
            "allstop.stop.result",
            &client.request("allstop.stop", &stop).await,
        );
    }
    client.request("session.resume", &session).await;
    let detached = client.request("session.detach", &session).await;
    assert!(detached["receipt"].is_object(), "{detached}");
    assert_valid("session.detach.result", &detached);
    let detached = client.request("session.detach", &session).await;
    assert_valid("session.detach.result", &detached);
}

/// The wait for an answer lasts while events occur. The result names the reason for the end of the wait, and nothing is
/// stopped.
#[tokio::test]
async fn wait_ends_with_inactivity() {
    const STEPS: u32 = 4;
    const STEP: Duration = Duration::from_millis(500);

    let steps = "{calls: [{tool: step, arguments: {}}]}, ".repeat(STEPS as usize);
    let script =
        format!("turns: [{{replies: [{steps} {{calls: [{{tool: wait, arguments: {{}}}}]}}]}}]");
    let server = TestServer::new(&script).await;
    let mut client = server.client();
    let tools = json!([{ "name": "step" }, { "name": "wait" }]);
    client.create("s", &json!({ "tools": tools })).await;
    let message =
        json!({ "sessionId": "s", "prompt": "go", "inactivityMs": 1_500, "timeoutMs": 60_000 });
    assert_valid("session.sendAndWait.params", &message);
    let waiting = client.send("session.sendAndWait", &message).await;
    let begin = Instant::now();
    for step in 0..STEPS {
        let request = client.event("external_tool.requested").await;
        // Each pause is shorter than the limit for inactivity, but the sum of the pauses is longer.
        sleep(STEP).await;
        let result = json!({ "sessionId": "s", "requestId": request["requestId"], "result": step.to_string() });
        client
            .request("session.tools.handlePendingToolCall", &result)
            .await;
    }
    let answer = client.answer_to(waiting).await;
    assert!(begin.elapsed() > STEP * STEPS);
    assert_valid("session.sendAndWait.result", &answer["result"]);
    assert_eq!(answer["result"]["limit"], "inactivityMs", "{answer}");
    assert_eq!(answer["result"]["turnRuns"], true, "{answer}");
    let session = json!({ "sessionId": "s" });
    let aborted = client.request("session.abort", &session).await;
    assert_eq!(aborted["receipt"]["outcome"], Value::Null, "{aborted}");
}

/// After a turn was rolled back, the next turn can reuse the ids of its calls.
#[tokio::test]
async fn call_with_the_id_of_an_earlier_one_can_be_cancelled() {
    // Each turn has other arguments, because a repetition of a call with an unknown outcome would need a permission.
    let turn = |n| {
        format!(
            "{{when: wait {n}, replies: [{{calls: [{{tool: wait, id: c1, arguments: {{n: {n}}}}}]}}]}}"
        )
    };
    let script = format!("turns: [{}, {}, {}]", turn(1), turn(2), turn(3));
    let server = TestServer::new(&script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    for turn in 1..=3 {
        let message = json!({ "sessionId": "s", "prompt": format!("wait {turn}") });
        client.request("session.send", &message).await;
        let request = client.event("external_tool.requested").await;
        let call = json!({ "sessionId": "s", "toolCallId": request["toolCallId"] });
        let cancelled = client.request("allstop.cancelToolCall", &call).await;
        assert_eq!(cancelled["cancelled"], true, "turn {turn}: {cancelled}");
        client
            .request("session.abort", &json!({ "sessionId": "s" }))
            .await;
    }
}

/// A dry run of the stop of an ended call has the outcome of the stop itself.
#[tokio::test]
async fn preview_of_an_ended_call_agrees_with_its_stop() {
    let script =
        "turns: [{replies: [{calls: [{tool: wait, id: c1, arguments: {}}]}, {text: Done.}]}]";
    let server = TestServer::new(script).await;
    let mut client = server.client();
    client
        .create("s", &json!({ "tools": [{ "name": "wait" }] }))
        .await;
    let message = json!({ "sessionId": "s", "prompt": "wait" });
    let waiting = client.send("session.sendAndWait", &message).await;
    let request = client.event("external_tool.requested").await;
    let result = json!({ "sessionId": "s", "requestId": request["requestId"], "result": "waited" });
    client
        .request("session.tools.handlePendingToolCall", &result)
        .await;
    let answer = client.answer_to(waiting).await;
    assert_eq!(answer["result"]["outcome"], "completed", "{answer}");
    for (call, outcome) in [("c1", "already_ended"), ("unknown", "not_found")] {
        let call = json!({ "sessionId": "s", "toolCallId": call });
        let preview = client.request("allstop.preview", &call).await;
        assert_eq!(preview["receipt"]["outcome"], outcome, "{preview}");
        let stop = client.request("allstop.cancelToolCall", &call).await;
        assert_eq!(stop["receipt"]["outcome"], outcome, "{stop}");
        assert_eq!(preview["receipt"]["target"], stop["receipt"]["target"]);
    }
}
