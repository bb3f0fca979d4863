//! The unmodified reference server of MCP, which continues cancelled calls and reports progress.
//!
//! `cargo xtask parts` downloads the server. If Node and npm are missing, that command skips the server and prints the
//! reason. In that case these tests do nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allstop_core::CallId;
use allstop_tools::mcp::{McpServerConfig, McpTransport, OnIgnoredCancel};
use allstop_tools::{CallLink, CallObserver, CallProgress};
use serde_json::{Value, json};

use crate::support::{Place, Running, only_item, part_program, wait_until};

const PROGRAM: &str = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
const LONG: &str = "t__trigger-long-running-operation";

async fn place(change: impl FnOnce(&mut McpServerConfig)) -> Option<Place> {
    let program = part_program("everything", PROGRAM)?;
    let place = Place::with("", |config| {
        config.transport = McpTransport::Stdio {
            command: "node".into(),
            args: vec![program.into(), "stdio".into()],
            env: Vec::new(),
        };
        config.handshake_timeout = Duration::from_secs(20);
        change(config);
    });
    let place = place.await;
    assert_eq!(place.state().to_string(), "ready");
    Some(place)
}

#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl CallObserver for Seen {
    fn output(&self, _call: &CallId, output: &[u8]) {
        let text = String::from_utf8(output.to_vec()).unwrap();
        self.0.lock().unwrap().push(text);
    }

    fn progress(&self, _call: &CallId, progress: &CallProgress) {
        self.0.lock().unwrap().push(progress.to_string());
    }

    fn heartbeat(&self) {}
}

impl Seen {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Starts a call of one minute, and waits until it has shown progress twice.
async fn long_call(place: &Place) -> (Running, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let link = CallLink::new(CallId::new("call_1"), Arc::clone(&seen) as _);
    let arguments = json!({"duration": 60, "steps": 600});
    let call = place.start_with(LONG, arguments, link);
    wait_until("it shows that it goes on", || seen.count() >= 2).await;
    assert_eq!(
        seen.0.lock().unwrap()[..2],
        ["progress 1/600", "progress 2/600"]
    );
    (call, seen)
}

async fn echo(place: &Place) -> String {
    let answer = place.call("t__echo", json!({"message": "on"})).await;
    answer.unwrap()
}

fn state_of(item: &Value) -> &str {
    item["state"].as_str().unwrap()
}

#[tokio::test]
async fn call_that_ignores_its_stop_is_unreachable() {
    let Some(place) = place(|_| {}).await else {
        return;
    };
    let (call, seen) = long_call(&place).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(state_of(&item), "unreachable", "{item}");
    assert!(!receipt.quiet());
    let shown = seen.count();
    assert_eq!(echo(&place).await, "Echo: on");
    assert_eq!(seen.count(), shown, "no progress is shown after the stop");
}

#[tokio::test]
async fn call_that_ignores_its_stop_ends_with_its_server() {
    let end = |config: &mut McpServerConfig| config.on_ignored_cancel = OnIgnoredCancel::EndServer;
    let Some(place) = place(end).await else {
        return;
    };
    let (call, _seen) = long_call(&place).await;
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(state_of(&item), "stopped", "{item}");
    assert_eq!(item["verified"], "process_group_empty", "{item}");
    assert!(receipt.quiet());
    wait_until("it is there again", || place.state().to_string() == "ready").await;
    assert_eq!(echo(&place).await, "Echo: on");
}

const TASK: &str = "t__simulate-research-query";

/// The server asks its question with a separate request, and the client declines, because there is no person.
#[tokio::test]
async fn tool_that_requires_a_task_asks_and_returns_its_result() {
    let Some(place) = place(|_| {}).await else {
        return;
    };
    let arguments = json!({"topic": "stops", "ambiguous": true});
    let report = place.call(TASK, arguments).await.unwrap();
    assert!(report.starts_with("# Research Report: stops"), "{report}");
    assert!(report.contains("User declined"), "{report}");
}

#[tokio::test]
async fn stopped_task_is_cancelled_at_the_server() {
    let Some(place) = place(|_| {}).await else {
        return;
    };
    let call = place.start(TASK, json!({"topic": "stops"}));
    // The stop may arrive before or after the server has created the task.
    let receipt = call.stop().await;
    let item = only_item(&receipt);
    assert_eq!(state_of(&item), "stopped", "{item}");
    assert!(receipt.quiet(), "{item}");
    assert_eq!(echo(&place).await, "Echo: on");
}
