//! Allstop is the client of `allstop mcp serve`: the receipt of the client proves the end of the command.

use serde_json::Value;

use super::{stubborn, wait_for_no_sleeper, wait_for_sleeper};
use crate::support::Place;
use crate::support::chat_user::{CTRL_D, ChatUser};
use crate::support::terminal::Terminal;

#[test]
fn stop_of_a_call_of_exec_is_confirmed() {
    let place = Place::new();
    check_confirmed(&place, place.sleeper());
}

/// The server kills the command before the client stops waiting.
#[test]
fn stop_of_a_command_that_ignores_sigterm_is_confirmed() {
    let place = Place::new();
    check_confirmed(&place, &stubborn(&place));
}

/// Stops a call of `exec` with this command, and checks the receipt of the client.
#[track_caller]
fn check_confirmed(place: &Place, command: &str) {
    let program = env!("CARGO_BIN_EXE_allstop");
    let config = format!("[mcp.servers.s]\ncommand = \"{program}\"\nargs = [\"mcp\", \"serve\"]\n");
    let config = place.file("s.toml", config);
    let script = format!(
        "replies:\n  - calls: [{{tool: s__exec, arguments: {{command: \"{command}\"}}}}]\n  - text: Done.\n"
    );
    let chat = place.allstop().arg("chat").arg("--yes");
    let chat = chat.args(&format!("--config {}", config.display()));
    let chat = chat.arg("--model").arg(place.script(&script));
    let user = ChatUser::with_model(place, chat, Terminal::new());
    user.types("hello");
    wait_for_sleeper(place);
    let stopped = place.allstop().args("stop last --json").end().ok();
    let stopped: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
    let items = stopped["receipt"]["items"].as_array().expect("items");
    let call = items.iter().find(|item| item["name"] == "s__exec");
    let call = call.unwrap_or_else(|| panic!("no call in {stopped}"));
    assert_eq!(call["state"], "stopped", "{call}");
    assert_eq!(call["how"], "remote_confirmed", "{call}");
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
    wait_for_no_sleeper(place);
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
    place.assert_nothing_runs();
}
