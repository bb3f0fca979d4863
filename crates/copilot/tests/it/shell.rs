//! Commands that a client runs in a session.

use allstop_jsonrpc::encode_frame;
use serde_json::{Value, json};

use crate::support::{TestClient, TestServer};

const SCRIPT: &str = "turns: [{replies: [{text: Not used.}]}]";

async fn status_of(client: &mut TestClient, id: &Value) -> Value {
    let tasks = client
        .request("session.tasks.list", &json!({ "sessionId": "s" }))
        .await;
    let tasks = tasks["tasks"].as_array().expect("tasks").clone();
    let task = tasks.into_iter().find(|task| task["id"] == *id);
    task.map_or(Value::Null, |task| task["status"].clone())
}

#[tokio::test]
async fn command_of_a_client_is_work_of_the_session() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let exec = json!({ "sessionId": "s", "command": "sleep 600" });
    let id = client.request("session.shell.exec", &exec).await["processId"].clone();
    assert_eq!(status_of(&mut client, &id).await, "running");
    let kill = json!({ "sessionId": "s", "processId": id });
    let killed = client.request("session.shell.kill", &kill).await;
    assert_eq!(killed["killed"], true, "{killed}");
    let items = killed["receipt"]["items"].as_array().expect("items");
    assert!(
        items
            .iter()
            .any(|item| item["id"] == id && item["state"] == "stopped"),
        "{killed}"
    );
    let again = client.request("session.shell.kill", &kill).await;
    assert_eq!(again["killed"], false, "{again}");
}

#[tokio::test]
async fn command_ends_with_the_session() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let exec = json!({ "sessionId": "s", "command": "sleep 600", "timeout": 600_000 });
    let id = client.request("session.shell.exec", &exec).await["processId"].clone();
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopped = client.request("allstop.stop", &stop).await;
    let items = stopped["receipt"]["items"].as_array().expect("items");
    assert!(
        items
            .iter()
            .any(|item| item["id"] == id && item["state"] == "stopped"),
        "{stopped}"
    );
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
}

/// The answer about a command that a stop meets at its start does not deny that the command has run.
#[tokio::test]
async fn command_that_has_run_is_never_called_not_started() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let place = tempfile::TempDir::new().expect("a temporary folder");
    let mark = |number: u32| place.path().join(number.to_string());
    let mut calls = Vec::new();
    for number in 0..30 {
        let command = format!("touch '{}'; sleep 600", mark(number).display());
        let exec = json!({ "sessionId": "s", "command": command });
        calls.push(client.send("session.shell.exec", &exec).await);
    }
    let first = mark(0);
    let ran = async {
        while !first.exists() {
            tokio::task::yield_now().await;
        }
    };
    let ran = tokio::time::timeout(crate::support::SOON, ran).await;
    ran.expect("the first command runs");
    let stop = json!({ "sessionId": "s", "extent": "session" });
    let stopping = client.send("allstop.stop", &stop).await;
    let mut answers = Vec::new();
    for call in calls {
        answers.push(client.answer_to(call).await);
    }
    let stopped = client.answer_to(stopping).await;
    assert_eq!(stopped["result"]["receipt"]["quiet"], true, "{stopped}");
    for (number, answer) in (0..).zip(answers) {
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        let is_denied = text.contains("not started");
        assert!(!(is_denied && mark(number).exists()), "{number}: {answer}");
    }
}

/// The server handles the requests of one write before it has started a command.
#[tokio::test]
async fn stop_covers_the_commands_of_earlier_requests() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let frame = |id: u64, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        encode_frame(request.to_string().as_bytes())
    };
    for (round, stop) in [
        (1, "allstop.stop"),
        (2, "session.abort"),
        (3, "allstop.stop"),
    ] {
        let id = |number: u64| round * 1_000 + number;
        let command = |request: u64| json!({ "sessionId": "s", "requestId": request.to_string(), "command": "sleep 600" });
        let mut write = Vec::new();
        for number in [1, 2] {
            let method = "session.shell.executeUserRequested";
            write.extend(frame(id(number), method, command(id(number))));
        }
        let extent = json!({ "sessionId": "s", "extent": "turn_and_background" });
        write.extend(frame(id(3), stop, extent));
        assert!(client.write(&write).await);
        let stopped = client.answer_to(id(3)).await;
        let receipt = &stopped["result"]["receipt"];
        let items = receipt["items"].as_array().expect("items");
        let commands = items.iter().filter(|item| item["kind"] == "background");
        let states: Vec<_> = commands.map(|item| item["state"].clone()).collect();
        assert_eq!(states, ["stopped", "stopped"], "{stopped}");
        assert_eq!(receipt["quiet"], true, "{stopped}");
        for number in [1, 2] {
            let answer = client.answer_to(id(number)).await;
            assert_eq!(answer["result"]["success"], false, "{answer}");
        }
    }
}

#[tokio::test]
async fn command_ends_at_its_limit() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let exec = json!({ "sessionId": "s", "command": "sleep 600", "timeout": 1 });
    let id = client.request("session.shell.exec", &exec).await["processId"].clone();
    client
        .request("session.tasks.waitForPending", &json!({ "sessionId": "s" }))
        .await;
    assert_eq!(status_of(&mut client, &id).await, "cancelled");
}

#[tokio::test]
async fn requested_command_returns_its_output_or_is_cancelled() {
    let server = TestServer::new(SCRIPT).await;
    let mut client = server.client();
    client.create("s", &json!({})).await;
    let execute = |request: &str, command: &str| json!({ "sessionId": "s", "requestId": request, "command": command });
    let method = "session.shell.executeUserRequested";
    let result = client
        .request(method, &execute("a", "echo out; exit 3"))
        .await;
    assert_eq!(
        (&result["success"], &result["exitCode"]),
        (&json!(false), &json!(3))
    );
    assert_eq!(result["output"], "out\n");
    let cancel = json!({ "sessionId": "s", "requestId": "b" });
    let cancelled = client
        .request("session.shell.cancelUserRequested", &cancel)
        .await;
    assert_eq!(cancelled["cancelled"], false);
    let running = client.send(method, &execute("b", "sleep 600")).await;
    for _ in 0..1_000 {
        let cancelled = client
            .request("session.shell.cancelUserRequested", &cancel)
            .await;
        if cancelled["cancelled"] == true {
            break;
        }
        tokio::task::yield_now().await;
    }
    let result = client.answer_to(running).await["result"].clone();
    assert_eq!(
        (&result["success"], &result["exitCode"]),
        (&json!(false), &Value::Null)
    );
}
