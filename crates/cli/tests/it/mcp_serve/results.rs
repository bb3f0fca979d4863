//! Results of the tools: their sizes, and the commands that they name.

use serde_json::json;

use super::client::McpUser;
use crate::support::terminal::Terminal;
use crate::support::wait::eventually;
use crate::support::{Place, Signal};

#[test]
fn preview_has_the_last_output_only_and_the_first_command_first() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let flood = "seq 1 20000; exec sleep 1000";
    let first = user.report("background", &json!({"command": flood}));
    let second = user.report("background", &json!({"command": place.sleeper()}));
    let commands = eventually("the output", || {
        let preview = user.report("preview", &json!({}));
        let output = preview["commands"][0]["output"].clone();
        let is_whole = output
            .as_str()
            .is_some_and(|text| text.ends_with("\n20000\n"));
        is_whole.then(|| preview["commands"].clone())
    });
    assert_eq!(commands[0]["id"], first["id"]);
    assert_eq!(commands[1]["id"], second["id"]);
    let output = commands[0]["output"].as_str().expect("a text");
    assert!(
        output.starts_with("[earlier output left out]\n"),
        "{output}"
    );
    assert!(output.len() < 600, "{}", output.len());
    user.close();
    place.assert_nothing_runs();
}

#[test]
fn long_output_has_a_hint() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let report = user.report("exec", &json!({"command": "seq 1 20000"}));
    let output = report["output"].as_str().expect("a text");
    assert!(
        output.contains("left out; redirect the output to a file to keep all of it …]"),
        "{output}"
    );
    user.close();
}

/// A client that cancels without a progress token does not know the id of the command.
#[test]
fn receipt_without_an_id_names_the_commands_before() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let first = user.report("exec", &json!({"command": "exit 3"}));
    let last = user.report("exec", &json!({"command": "true"}));
    let receipt = user.result("receipt", &json!({}));
    assert_eq!(receipt["structuredContent"]["id"], last["id"]);
    let text = receipt["content"][0]["text"].as_str().expect("a text");
    let id = first["id"].as_str().expect("a text");
    let before = format!("[ended before: {id} `exit 3` exited with code 3]");
    assert!(text.ends_with(&before), "{text}");
    user.close();
}

#[test]
fn absent_arguments_may_be_null() {
    let place = Place::new();
    let mut user = McpUser::start(&place);
    let nulls = json!({"command": "echo works", "cwd": null, "env": null, "timeout_ms": null});
    assert_eq!(user.report("exec", &nulls)["output"], "works\n");
    user.close();
}

#[test]
fn server_on_a_terminal_names_the_expected_client() {
    let place = Place::new();
    let terminal = Terminal::new();
    let server = place.allstop().args("mcp serve");
    let running = server.on_terminal(terminal.line()).start();
    terminal.wait("waiting for an MCP client");
    assert_eq!(running.end_by(Signal::TERM).code, 143);
}
