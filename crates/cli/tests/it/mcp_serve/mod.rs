//! `allstop mcp serve`: other agents run commands with a receipt.

mod allstop_client;
mod client;
mod conformance;
mod faults;
mod http;
mod http_client;
mod other_terminals;
mod requests;
mod results;
mod sessions;

use serde_json::{Value, json};

use crate::support::wait::eventually;
use crate::support::{Place, processes};
use client::McpUser;

/// Maximum size of the list of the tools, in bytes.
const TOOLS_BYTES_MAX: usize = 10_000;

/// A shell command whose process and child ignore SIGTERM. Prints `ready`.
fn stubborn(place: &Place) -> String {
    let sleeper = place.sleeper();
    format!("trap '' TERM; {sleeper} & echo ready; while :; do wait; done")
}

/// Waits until the sleeper of the place runs. A shell whose command contains its name does not count.
fn wait_for_sleeper(place: &Place) {
    eventually("the sleeper", || {
        let found = processes::of_text(place.sleeper());
        let runs = found
            .iter()
            .any(|process| process.command == place.sleeper());
        runs.then_some(())
    });
}

fn wait_for_no_sleeper(place: &Place) {
    eventually("the end of the command", || {
        processes::of_text(place.sleeper()).is_empty().then_some(())
    });
}

/// The state and the method of the end of the item that is a process of a command.
fn ended_by(receipt: &Value) -> (String, String) {
    let items = receipt["items"].as_array().expect("items");
    let item = items.iter().find(|item| item["name"] == "exec");
    let item = item.unwrap_or_else(|| panic!("no item of the command: {receipt}"));
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    (text("state"), text("how"))
}

#[test]
fn exec_returns_output_exit_code_and_proof() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let result = user.result(
        "exec",
        &json!({"command": "echo hello; echo bad >&2; exit 3"}),
    );
    assert_eq!(result["isError"], false, "{result}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.starts_with("hello\nbad\n[command "), "{text}");
    assert!(text.contains("exited with code 3]"), "{text}");
    let report = &result["structuredContent"];
    assert_eq!(report["state"], "exited");
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["output"], "hello\nbad\n");
    assert_eq!(report["verified"], "process_tree_empty", "{report}");
    assert!(report["receipt"].is_null(), "nothing was left: {report}");
    // The report stays.
    let again = user.report("receipt", &json!({"id": report["id"]}));
    assert_eq!(&again, report);
    let last = user.report("receipt", &json!({}));
    assert_eq!(&last, report);
    assert_eq!(user.close().code, 0);
    place.assert_nothing_runs();
}

#[test]
fn command_has_its_folder_and_environment() {
    let place = Place::new();
    std::fs::create_dir(place.work().join("below")).expect("a folder");
    let server = place
        .allstop()
        .args("mcp serve")
        .env("SOME_TOKEN", "secret");
    let mut user = McpUser::of(server);
    let command = json!({
        "command": "basename $PWD; echo $FLAVOUR [$SOME_TOKEN]",
        "cwd": "below",
        "env": {"FLAVOUR": "lemon"},
    });
    let report = user.report("exec", &command);
    assert_eq!(report["output"], "below\nlemon []\n");
    let result = user.result("exec", &json!({"command": "true", "cwd": "absent"}));
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("absent"), "{text}");
    user.close();
}

#[test]
fn processes_that_a_command_leaves_are_ended_and_listed() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let command = format!("{} & echo started", place.sleeper());
    let report = user.report("exec", &json!({"command": command}));
    assert_eq!(report["output"], "started\n");
    assert_eq!(report["exit_code"], 0);
    let left = report["left_processes"].as_array().expect("a list");
    assert_eq!(left.len(), 1, "{report}");
    assert_eq!(left[0]["command_line"], place.sleeper());
    let receipt = &report["receipt"];
    assert_eq!(receipt["quiet"], true);
    assert_eq!(receipt["cause"]["kind"], "parent");
    assert_eq!(ended_by(receipt), ("stopped".into(), "sigterm".into()));
    assert!(processes::of_text(place.sleeper()).is_empty());
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn cancelled_request_ends_a_tree_that_ignores_sigterm() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --grace 200ms"));
    let call = user.call("exec", &json!({"command": stubborn(&place)}));
    let id = user.command_of(call);
    wait_for_sleeper(&place);
    let cancelled = json!({"requestId": call, "reason": "enough"});
    user.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}));
    let report = eventually("the end", || {
        let result = user.result("receipt", &json!({"id": id}));
        (result["isError"] == false).then(|| result["structuredContent"].clone())
    });
    assert_eq!(report["state"], "stopped");
    assert_eq!(report["output"], "ready\n");
    assert_eq!(report["signal"], 9, "{report}");
    assert_eq!(report["verified"], "process_tree_empty", "{report}");
    let receipt = &report["receipt"];
    assert_eq!(receipt["cause"]["kind"], "user");
    assert_eq!(receipt["quiet"], true);
    assert_eq!(ended_by(receipt), ("stopped".into(), "sigkill".into()));
    assert!(processes::of_text(place.sleeper()).is_empty());
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn time_limit_ends_the_work() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --grace 200ms"));
    let command = json!({"command": stubborn(&place), "timeout_ms": 300});
    let result = user.result("exec", &command);
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(
        text.ends_with("was stopped by its time limit: timeout of 0.3 s]\n[nothing of it is left running; verified]"),
        "{text}"
    );
    let report = &result["structuredContent"];
    assert_eq!(report["state"], "timed_out");
    assert_eq!(report["output"], "ready\n");
    assert_eq!(report["reason"], "timeout of 0.3 s");
    let receipt = &report["receipt"];
    assert_eq!(receipt["cause"]["kind"], "deadline");
    assert_eq!(ended_by(receipt), ("stopped".into(), "sigkill".into()));
    assert!(processes::of_text(place.sleeper()).is_empty());
    user.close();
    place.assert_nothing_runs();
}

/// A command that kills its keeper, the process that contains it.
#[test]
fn command_that_kills_its_keeper_has_failed() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let sleeper = place.sleeper();
    let command = format!("setsid {sleeper} & kill -9 $PPID; {sleeper}");
    let result = user.result("exec", &json!({"command": command}));
    assert_eq!(result["isError"], true, "{result}");
    let report = &result["structuredContent"];
    assert_eq!(report["state"], "failed", "{report}");
    let reason = "the keeper of the command was killed";
    assert_eq!(report["reason"], reason);
    assert_eq!(report["verified"], "process_tree_empty", "{report}");
    let receipt = &report["receipt"];
    assert_eq!(receipt["quiet"], true);
    assert_eq!(ended_by(receipt), ("stopped".into(), "sigkill".into()));
    assert!(processes::of_text(place.sleeper()).is_empty());
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn stop_of_one_command_leaves_its_sibling() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let command = json!({"command": format!("{} & wait", place.sleeper())});
    let (first, second) = (user.call("exec", &command), user.call("exec", &command));
    let stopped = user.command_of(first);
    let sleepers = || processes::of_text(place.sleeper()).len();
    // Each command has a shell and its child.
    eventually("both commands", || (sleepers() == 4).then_some(()));
    let report = user.report("stop", &json!({"id": stopped}));
    assert_eq!(report["state"], "stopped");
    assert_eq!(report["receipt"]["quiet"], true);
    assert_eq!(
        user.answer(first)["result"]["structuredContent"]["receipt"],
        report["receipt"]
    );
    assert_eq!(sleepers(), 2);
    let running = user.report("preview", &json!({}));
    let commands = running["commands"].as_array().expect("a list");
    assert_eq!(commands.len(), 1, "{running}");
    assert_eq!(commands[0]["id"], user.command_of(second));
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn stop_of_an_ended_command_returns_its_receipt() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let exited = user.report("exec", &json!({"command": "echo done"}));
    let again = user.report("stop", &json!({"id": exited["id"]}));
    assert_eq!(again, exited);
    let started = user.report("background", &json!({"command": place.sleeper()}));
    wait_for_sleeper(&place);
    let first = user.report("stop", &json!({"id": started["id"]}));
    let second = user.report("stop", &json!({"id": started["id"], "force": true}));
    assert_eq!(first, second);
    assert_eq!(ended_by(&first["receipt"]).0, "stopped");
    user.close();
}

#[test]
fn background_command_is_previewed_and_stopped_by_force() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --grace 1h"));
    let started = user.report("background", &json!({"command": stubborn(&place)}));
    assert_eq!(started["state"], "running");
    let id = &started["id"];
    let shown = eventually("the output", || {
        let preview = user.report("preview", &json!({"id": id}));
        let command = preview["commands"][0].clone();
        (command["output"] == "ready\n").then_some(command)
    });
    assert_eq!(shown["receipt"]["preview"], true);
    let preview = user.result("preview", &json!({}));
    let text = preview["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("[a stop ends `trap '' TERM;"), "{text}");
    assert!(
        !text.contains("executor") && !text.contains("task"),
        "{text}"
    );
    assert_eq!(ended_by(&shown["receipt"]).0, "still_running");
    assert!(!processes::of_text(place.sleeper()).is_empty());
    let unfinished = user.result("receipt", &json!({"id": id}));
    assert_eq!(unfinished["isError"], true);
    let report = user.report("stop", &json!({"id": id, "force": true}));
    assert_eq!(
        ended_by(&report["receipt"]),
        ("stopped".into(), "sigkill".into())
    );
    assert!(processes::of_text(place.sleeper()).is_empty());
    let preview = user.report("preview", &json!({}));
    assert_eq!(preview["commands"], json!([]));
    user.close();
}

#[test]
fn wrong_calls_have_helpful_errors() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    for (tool, arguments, expected) in [
        (
            "stop",
            json!({"id": "nothing"}),
            "command `nothing` not found",
        ),
        (
            "receipt",
            json!({"id": "nothing"}),
            "`preview` lists your running commands",
        ),
        ("receipt", json!({}), "no command of yours has ended"),
        (
            "preview",
            json!({"id": "nothing"}),
            "command `nothing` not found",
        ),
        ("exec", json!({}), "missing field `command`"),
        (
            "exec",
            json!({"command": "true", "timeout": 1}),
            "unknown field `timeout`",
        ),
        ("exec", json!({"command": ""}), "`command` is empty"),
        (
            "exec",
            json!({"command": "true", "timeout_ms": 0}),
            "a whole number of milliseconds, 1 or more",
        ),
        (
            "exec",
            json!({"command": "true", "env": {"A=B": "x"}}),
            "`env` has the name \"A=B\"",
        ),
        (
            "exec",
            json!({"command": "true", "env": {"A": "x".repeat(2 * 1024 * 1024)}}),
            "the limit is 131071",
        ),
        (
            "background",
            json!({"command": "true", "cwd": "absent"}),
            "`cwd` names an existing folder",
        ),
        (
            "exec",
            json!({"command": "true", "cwd": "absent"}),
            "`cwd` names an existing folder",
        ),
    ] {
        let result = user.result(tool, &arguments);
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains(expected), "{text}");
    }
    let id = user.call("absent", &json!({}));
    assert_eq!(user.answer(id)["error"]["code"], -32602);
    user.close();
}

#[test]
fn commands_beyond_the_limit_are_refused() {
    let place = Place::new();
    let mut user = McpUser::of(place.allstop().args("mcp serve --max-commands 2"));
    for _ in 0..2 {
        user.report("background", &json!({"command": place.sleeper()}));
    }
    let refused = user.result("exec", &json!({"command": "true"}));
    let text = refused["content"][0]["text"].as_str().expect("a text");
    assert!(
        text.starts_with("too many commands run on this server: wait"),
        "{text}"
    );
    assert_eq!(refused["isError"], true);
    assert_eq!(user.close().code, 0);
    place.assert_nothing_runs();
}

#[test]
fn tools_have_schemas() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let id = user.request("tools/list", &json!({}));
    let listed = user.answer(id);
    let tools = listed["result"]["tools"].as_array().expect("a list");
    let names: Vec<_> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["exec", "background", "stop", "preview", "receipt"]);
    // The list is a part of the context of each model.
    let size = listed["result"].to_string().len();
    assert!(size < TOOLS_BYTES_MAX, "{size}");
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
    }
    user.close();
}
