//! Lost clients, killed servers and hostile input.

use std::io::PipeReader;
use std::time::Duration;

use serde_json::json;

use super::client::McpUser;
use super::{stubborn, wait_for_sleeper};
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal, processes};

/// Maximum memory of the server during a flood, in kB. The server needs about 40 MB; the flood has 1 GB.
const MEMORY_KB_MAX: u64 = 150_000;

/// Starts a command that ignores SIGTERM, and waits for its child.
fn start_stubborn(user: &mut McpUser, place: &Place) -> u64 {
    let call = user.call("exec", &json!({"command": stubborn(place)}));
    wait_for_sleeper(place);
    call
}

#[test]
fn end_of_input_stops_everything() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --grace 200ms"));
    let call = start_stubborn(&mut user, &place);
    user.report("background", &json!({"command": place.sleeper()}));
    let ended = user.close();
    assert_eq!(ended.code, 0, "{ended:?}");
    // The client, which may still read, receives the end of its request.
    let answered = format!("\"id\":{call},");
    assert!(ended.stdout.contains(&answered), "{}", ended.stdout);
    assert!(
        ended
            .stderr
            .contains("2 tasks were stopped; nothing is left running"),
        "{}",
        ended.stderr
    );
    place.assert_nothing_runs();
}

#[test]
fn killed_server_leaves_nothing() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    start_stubborn(&mut user, &place);
    user.report("background", &json!({"command": place.sleeper()}));
    assert_eq!(user.end_by(Signal::KILL).code, 137);
    // The keepers end the commands.
    eventually("the end of the commands", || {
        place.leftovers().is_empty().then_some(())
    });
}

#[test]
fn signals_stop_everything_with_their_codes() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let place = Place::new();
        let mut user = McpUser::of(place.allstop().args("mcp serve --grace 200ms"));
        start_stubborn(&mut user, &place);
        let ended = user.end_by(signal);
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(
            ended
                .stderr
                .contains("1 task was stopped; nothing is left running"),
            "{}",
            ended.stderr
        );
        place.assert_nothing_runs();
    }
}

#[test]
fn second_signal_uses_force() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --grace 1h"));
    start_stubborn(&mut user, &place);
    user.running().signal(Signal::INT);
    assert!(!user.running().ends_within(Duration::from_millis(500)));
    assert_eq!(user.end_by(Signal::INT).code, 130);
    place.assert_nothing_runs();
}

#[test]
fn garbage_does_not_end_the_server() {
    let place = Place::new();
    let mut user = McpUser::before_session(place.allstop().args("mcp serve"));
    user.send_line("garbage before the session");
    drop(user);
    let mut user = McpUser::start(&place);
    for line in [
        "garbage",
        "{",
        "{}",
        "[]",
        "\u{0}",
        "{\"jsonrpc\":\"2.0\",\"id\":[1]}",
    ] {
        user.send_line(line);
    }
    user.send_line(&"x".repeat(20 * 1024 * 1024));
    for (line, code) in [
        (&b"garbage \xff"[..], -32700),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
    ] {
        let before = user.errors_without_id(code);
        user.send_bytes(line);
        eventually("the error", || {
            (user.errors_without_id(code) > before).then_some(())
        });
    }
    let report = user.report("exec", &json!({"command": "echo works"}));
    assert_eq!(report["output"], "works\n");
    assert_eq!(user.close().code, 0);
}

#[test]
fn flood_of_output_uses_bounded_memory() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let report = user.report("exec", &json!({"command": "yes | head -c 1G; echo end"}));
    assert_eq!(report["output_bytes"], 1024 * 1024 * 1024 + 4);
    let output = report["output"].as_str().expect("a text");
    assert!(
        output.len() < 64 * 1024 && output.ends_with("end\n"),
        "{}",
        output.len()
    );
    assert!(output.contains("bytes left out"), "the mark");
    let memory = processes::memory_kb(user.running().pid(), "VmHWM").expect("a number");
    assert!(memory < MEMORY_KB_MAX, "{memory} kB");
    user.close();
}

/// Starts a client that reads no answer, with a command and more answers than its pipe takes.
fn start_silent(place: &Place) -> (McpUser, PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let server = place
        .allstop()
        .args("mcp serve --grace 200ms")
        .stdout(writer);
    let mut user = McpUser::before_session(server);
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    user.request("initialize", &params);
    let command = json!({"name": "exec", "arguments": {"command": stubborn(place)}});
    user.request("tools/call", &command);
    wait_for_sleeper(place);
    for _ in 0..400 {
        user.request("tools/list", &json!({}));
    }
    (user, reader)
}

#[test]
fn client_that_reads_nothing_costs_bounded_memory_and_delays_no_stop() {
    let place = Place::new();
    let (mut user, reader) = start_silent(&place);
    let memory = processes::memory_kb(user.running().pid(), "VmHWM").expect("a number");
    assert!(memory < MEMORY_KB_MAX, "{memory} kB");
    let ended = user.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{ended:?}");
    drop(reader);
    place.assert_nothing_runs();
}

#[test]
fn end_of_input_stops_the_work_of_a_client_that_reads_nothing() {
    let place = Place::new();
    let (user, reader) = start_silent(&place);
    assert_eq!(user.close().code, 0);
    drop(reader);
    place.assert_nothing_runs();
}

#[test]
fn cancelled_request_of_a_client_that_reads_nothing_is_stopped() {
    let place = Place::new();
    let (mut user, reader) = start_silent(&place);
    let cancelled = json!({"requestId": 2, "reason": "enough"});
    user.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    eventually("the end of the command", || {
        let found = processes::of_text(place.sleeper());
        found.is_empty().then_some(())
    });
    assert_eq!(user.end_by(Signal::TERM).code, 143);
    drop(reader);
}

#[test]
fn client_that_sends_without_an_end_and_reads_nothing_is_gone() {
    let place = Place::new();
    let (mut user, reader) = start_silent(&place);
    // The server ends meanwhile, and closes the pipe.
    for _ in 0..20_000 {
        if !user.try_request("tools/list") {
            break;
        }
    }
    assert_eq!(user.close().code, 0);
    drop(reader);
    place.assert_nothing_runs();
}

#[test]
fn end_of_output_stops_everything() {
    let place = Place::new();
    let (mut user, reader) = start_silent(&place);
    drop(reader);
    assert!(user.running().ends_within(FACT_MAX));
    assert_eq!(user.close().code, 0);
    place.assert_nothing_runs();
}

#[test]
fn two_hundred_calls_are_answered() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let calls: Vec<_> = (0..200)
        .map(|_| user.call("exec", &json!({"command": "sleep 0.2; echo done"})))
        .collect();
    let mut refused = 0;
    for call in calls {
        let result = &user.answer(call)["result"];
        let text = result["content"][0]["text"].as_str().expect("a text");
        if result["isError"] == true {
            assert!(text.starts_with("too many commands run"), "{text}");
            refused += 1;
        } else {
            assert!(text.starts_with("done\n"), "{text}");
        }
    }
    assert!((1..=136).contains(&refused), "{refused}");
    assert_eq!(user.close().code, 0);
    place.assert_nothing_runs();
}
