//! Ids of requests, and cancellations that come with their calls.

use serde_json::{Value, json};

use super::client::McpUser;
use crate::support::Place;
use crate::support::wait::eventually;

/// Number of calls that are cancelled in the write of the call.
const CALLS: u64 = 10;

fn call(id: u64, command: &str) -> Value {
    let params = json!({"name": "exec", "arguments": {"command": command}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn cancellation(id: u64) -> Value {
    let params = json!({"requestId": id, "reason": "enough"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

#[test]
fn second_request_with_an_open_id_is_refused() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    user.send(&call(70, "echo first >> runs; sleep 0.5; echo done"));
    user.send(&call(70, "echo second >> runs"));
    // A response with the id would end the first request.
    eventually("the error", || {
        (user.errors_without_id(-32600) == 1).then_some(())
    });
    let answer = user.answer(70);
    let report = &answer["result"]["structuredContent"];
    assert_eq!(report["output"], "done\n", "{answer}");
    let runs = std::fs::read_to_string(place.work().join("runs"));
    assert_eq!(runs.expect("a file"), "first\n");
    assert_eq!(user.close().code, 0);
}

#[test]
fn call_that_is_cancelled_in_its_write_is_confirmed_as_not_begun() {
    let place = Place::new();
    let extension = json!({"extensions": {"io.allstop/confirmed-cancel": {}}});
    let server = place.allstop().args("mcp serve");
    let mut user = McpUser::with_capabilities(server, &extension);
    for id in 70..70 + CALLS {
        let command = call(id, "echo x >> runs");
        user.send_line(&format!("{command}\n{}", cancellation(id)));
        let answer = user.answer(id);
        assert_eq!(answer["error"]["code"], -32800, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a text");
        assert!(message.contains("no command was started"), "{message}");
    }
    assert!(!place.work().join("runs").exists(), "no command has run");
    assert_eq!(user.close().code, 0);
}

/// By the protocol, a client without the extension gets no response to a cancelled request.
#[test]
fn call_that_is_cancelled_in_its_write_does_not_run() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    for id in 70..70 + CALLS {
        let command = call(id, "echo x >> runs");
        user.send_line(&format!("{command}\n{}", cancellation(id)));
    }
    user.report("exec", &json!({"command": "true"}));
    assert!(!place.work().join("runs").exists(), "no command has run");
    let ended = user.close();
    assert_eq!(ended.code, 0);
    assert!(!ended.stdout.contains("\"id\":70"), "{}", ended.stdout);
}
