//! MCP servers that are not available, and the variables that MCP servers inherit. The tests check the messages for
//! people and programs, and that no message repeats.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::copilot_clients::raw_client::RawClient;
use crate::serve::Server;
use crate::support::mcp_server::shell_server;
use crate::support::terminal::Terminal;
use crate::support::{Allstop, FACT_MAX, Place, Signal, eventually};

/// An MCP server that prints the reason and exits at its start.
const GONE: &str =
    "[mcp.servers.gone]\ncommand = \"sh\"\nargs = [\"-c\", \"echo no database >&2; exit 3\"]\n";

/// An MCP server that never answers.
const HANGS: &str = "[mcp.servers.hangs]\ncommand = \"sleep\"\nargs = [\"600\"]\n";

/// A script that takes longer than the first attempts to reconnect.
const SCRIPT: &str = r#"
replies:
  - calls:
      - tool: shell
        arguments: {command: "sleep 2"}
  - text: "Done."
"#;

fn run(place: &Place) -> Allstop<'_> {
    let config = place.file("gone.toml", GONE);
    place.run_script(SCRIPT).arg("--config").arg(config)
}

#[test]
fn one_that_is_not_available_is_named_once() {
    let place = Place::new();
    let ended = run(&place).arg("go").end().ok();
    let lines: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.contains("`gone`"))
        .collect();
    let [line] = lines[..] else {
        panic!("not one line: {ended:?}");
    };
    assert!(
        line.starts_with("the MCP server `gone` is not available: "),
        "{line}"
    );
    assert!(
        line.contains("(exit code 3: no database); next attempt in 1 s"),
        "{line}"
    );
}

#[test]
fn a_program_reads_it_as_an_event() {
    let place = Place::new();
    let ended = run(&place).args("--stream-json go").end().ok();
    let mut lines = ended.lines();
    lines.retain(|line| line["event"] == "mcp_server");
    let [event] = &lines[..] else {
        panic!("not one event: {ended:?}");
    };
    assert_eq!(event["server"], "gone");
    assert_eq!(event["available"], false);
    assert!(
        event["next_try_ms"].as_u64().is_some_and(|ms| ms <= 500),
        "{event}"
    );
    assert!(!ended.stderr.contains("gone"), "{ended:?}");
}

/// Asserts that all processes of the place end soon. If an MCP server has not answered before the command ends, a
/// keeper process ends the server shortly afterwards.
#[track_caller]
fn ends_soon(place: &Place) {
    eventually("its end", || place.leftovers().is_empty().then_some(()));
}

#[test]
fn one_that_hangs_is_named_when_the_deadline_comes() {
    let place = Place::new();
    let config = place.file("hangs.toml", format!("{GONE}{HANGS}"));
    let run = place.run_script(SCRIPT).arg("--config").arg(config);
    let ended = run.args("--json --timeout 1s go").end();
    ends_soon(&place);
    assert_eq!(ended.code, 124, "{ended:#?}");
    let error: Value = ended.envelope()["error"].clone();
    let message = error["message"].as_str().expect("a message");
    assert_eq!(
        message,
        "the run's deadline passed before the MCP server `hangs` answered"
    );
    let hint = error["hint"].as_str().expect("a hint");
    assert!(hint.contains("handshake_timeout"), "{hint}");
}

#[test]
fn terminal_shows_the_servers_that_start() {
    for command in ["run", "chat"] {
        let place = Place::new();
        let terminal = Terminal::new();
        let config = place.file("hangs.toml", HANGS);
        let begun = place.allstop().arg(command).arg("--store");
        let begun = begun.arg(place.store()).arg("--config").arg(config);
        let begun = begun.arg("--model").arg(place.script(SCRIPT)).arg("go");
        let mut running = begun.on_terminal(terminal.line()).start();
        terminal.wait("starting MCP servers: hangs");
        running.signal(Signal::INT);
        assert_eq!(running.end(FACT_MAX).code, 130);
        ends_soon(&place);
    }
}

/// Configuration and script for a call that never ends, as arguments of a command.
fn endless_call(place: &Place) -> String {
    let tools = r#"[{"name":"hang","inputSchema":{"type":"object"}}]"#;
    let script = shell_server("", tools, "echo called >called; continue");
    let server = place.file("server.sh", script);
    let config = format!(
        "[mcp.servers.s]\ncommand = \"sh\"\nargs = [\"{}\"]\n",
        server.display()
    );
    let config = place.file("hangs.toml", config);
    let script = place.script("replies: [{calls: [{tool: s__hang}]}, {text: Done.}]");
    format!("--yes --config {} --model {script}", config.display())
}

fn called(place: &Place) {
    let called = place.work().join("called");
    eventually("the call", || called.exists().then_some(()));
}

#[track_caller]
fn call_of(receipt: &Value) -> &Value {
    let mut items = receipt["items"].as_array().into_iter().flatten();
    let call = items.find(|item| item["name"] == "s__hang");
    call.unwrap_or_else(|| panic!("the call is not in the receipt: {receipt:#}"))
}

#[track_caller]
fn ended_with_its_server(place: &Place, receipt: &Value) {
    place.assert_nothing_runs();
    let item = call_of(receipt);
    assert_eq!(item["state"], "stopped", "{receipt:#}");
    assert_eq!(item["verified"], "process_tree_empty", "{receipt:#}");
    assert!(place.work().join("cancelled").exists());
}

/// A stop that ends the program also ends the server of a call. So the receipt proves the end of the call.
#[test]
fn stop_of_a_run_ends_the_server_of_a_call() {
    let place = Place::new();
    let run = place.allstop().args("run --json --store");
    let run = run.arg(place.store()).args(&endless_call(&place));
    let running = run.arg("go").start();
    called(&place);
    let ended = running.end_by(Signal::INT);
    assert_eq!(ended.code, 130, "{ended:#?}");
    ended_with_its_server(&place, &ended.envelope()["receipt"]);
}

#[test]
fn end_of_a_chat_ends_the_server_of_a_call() {
    let place = Place::new();
    let terminal = Terminal::new();
    let chat = place.allstop().args("chat --store").arg(place.store());
    let chat = chat.args(&endless_call(&place)).arg("go");
    let running = chat.on_terminal(terminal.line()).start();
    called(&place);
    assert_eq!(running.end_by(Signal::TERM).code, 143);
    let receipt = place.allstop().args("receipt last --json --store");
    let receipt = receipt.arg(place.store()).end().ok();
    let receipt = serde_json::from_str(receipt.stdout.trim()).expect("JSON");
    ended_with_its_server(&place, &receipt);
}

/// The stop of one task does not end the server, because other tasks use it. The stop of `serve` does.
#[test]
fn stop_of_a_task_keeps_the_server_and_the_end_of_serve_ends_it() {
    let place = Place::new();
    let flags = endless_call(&place);
    let server = Server::start_with(&place, &flags);
    let receipt_of =
        |task: &Value| task["metadata"]["https://allstop.dev/a2a/receipt/v1"]["receipt"].clone();
    let start = |server: &Server, text: &str| {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]},
        });
        let sent = server.request("POST /message:send", &body.to_string());
        let answer: Value = serde_json::from_str(&sent.expect("an answer").1).expect("JSON");
        called(&place);
        std::fs::remove_file(place.work().join("called")).expect("it is there");
        answer["task"]["id"].as_str().expect("an id").to_owned()
    };
    let first = start(&server, "m1");
    let stopped = server.request(&format!("POST /tasks/{first}:cancel"), "{}");
    let stopped: Value = serde_json::from_str(&stopped.expect("an answer").1).expect("JSON");
    assert_eq!(call_of(&receipt_of(&stopped))["state"], "unreachable");
    // The same server gets the next call.
    let second = start(&server, "m2");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
    let server = Server::start_with(&place, &flags);
    let task = server.get(&format!("/tasks/{second}"));
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    ended_with_its_server(&place, &receipt_of(&task));
}

#[test]
fn end_of_a_copilot_server_ends_the_server_of_a_call() {
    let place = Place::new();
    let server = place.allstop().args("copilot --port 0 --store");
    let server = server.arg(place.store()).args(&endless_call(&place));
    let server = server.env("COPILOT_CONNECTION_TOKEN", "secret").start();
    let port = server.line_of_stdout("listening on port ");
    let mut client = RawClient::connect(port.parse().expect("a port"));
    client.request("connect", &json!({"token": "secret"}));
    client.request("session.create", &json!({"sessionId": "one"}));
    let message = json!({"sessionId": "one", "prompt": "go"});
    client.request("session.send", &message);
    called(&place);
    assert_eq!(server.end_by(Signal::TERM).code, 143);
    let receipt = place.allstop().args("receipt last --json --store");
    let receipt = receipt.arg(place.store()).end().ok();
    let receipt = serde_json::from_str(receipt.stdout.trim()).expect("JSON");
    ended_with_its_server(&place, &receipt);
}

/// An MCP server that writes its environment to a file and exits.
const PRINTS: &str =
    "[mcp.servers.prints]\ncommand = \"sh\"\nargs = [\"-c\", \"printenv > server-env; exit 3\"]\n";

const SECRETS: [&str; 6] = [
    "MY_SECRET_THING",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "HF_TOKEN",
    "AWS_SESSION_TOKEN",
    "SLACK_BOT_TOKEN",
];

/// The configuration lists the variables that commands and an MCP server inherit. If a command fails because a variable
/// is hidden, its result contains a hint.
#[test]
fn the_configuration_lets_variables_through() {
    let place = Place::new();
    let config = format!(
        "[shell]\nenv = [\"NPM_*\", \"OPENAI_API_KEY\"]\n{PRINTS}inherit_env = [\"HF_TOKEN\"]\n"
    );
    let config = place.file("lets-through.toml", config);
    let script = r#"
replies:
  - calls: [{tool: shell, arguments: {command: "printenv > call-env; echo ${GITHUB_TOKEN:?}"}}]
  - text: Done.
"#;
    let mut run = place.run_script(script).arg("--config").arg(config);
    for name in SECRETS.into_iter().chain(["OPENAI_API_KEY"]) {
        run = run.env(name, "secret");
    }
    let ended = run.args("--stream-json go").end();
    let hint = "GITHUB_TOKEN is hidden from commands; to allow it, add it to `env` in the section `[shell]`";
    assert!(ended.stdout.contains(hint), "{}", ended.stdout);
    for (seen, expected) in [
        (
            "call-env",
            ["NPM_TOKEN=secret", "OPENAI_API_KEY=secret"].as_slice(),
        ),
        ("server-env", ["HF_TOKEN=secret"].as_slice()),
    ] {
        let path = place.work().join(seen);
        let text = eventually(seen, || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.contains("PATH=").then_some(text)
        });
        let mut found: Vec<_> = text
            .lines()
            .filter(|line| line.ends_with("=secret"))
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

/// A command of the model, which runs as the same user, cannot read the environment of the Allstop process or of its
/// keeper.
#[test]
fn a_command_cannot_read_the_environment_of_its_owner() {
    let place = Place::new();
    let script = r#"
replies:
  - calls: [{tool: shell, arguments: {command: "keeper=$PPID; owner=$(cut -d' ' -f4 /proc/$keeper/stat); id -u; cat /proc/$keeper/environ /proc/$owner/environ; cat /proc/self/environ | tr '\\0' '\\n'"}}]
  - text: Done.
"#;
    let open = place.path("open");
    std::fs::create_dir(&open).expect("a folder");
    std::fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("a mode");
    let run = place
        .allstop()
        .args("run --store")
        .arg(open.join("store.db"));
    let run = run.arg("--model").arg(place.script(script));
    let run = run.unprivileged().env("GITHUB_TOKEN", "hidden-1");
    let run = run.env("SHOWN", "shown").env("OPENAI_BASE", "hidden-2");
    let ended = run.args("--yes --stream-json go").end();
    let mut lines = ended.stdout.lines();
    let said = lines.find(|line| line.contains("tool_finished"));
    let said = said.unwrap_or_default();
    assert!(said.contains("SHOWN=shown"), "{said}{}", ended.stderr);
    assert!(!said.contains("hidden-1"), "{said}");
    assert_eq!(
        said.matches("hidden-2").count(),
        1,
        "in its own alone: {said}"
    );
    assert_eq!(said.matches("Permission denied").count(), 2, "{said}");
}

/// Neither a command of the model nor an MCP server inherits an API key, regardless of the name of its variable.
#[test]
fn keys_are_hidden_from_commands_and_servers() {
    let place = Place::new();
    let config = place.file("prints.toml", PRINTS);
    let script = r#"
replies:
  - calls: [{tool: shell, arguments: {command: "printenv > call-env; tr '\\0' '\\n' < /proc/$PPID/environ > keeper-env"}}]
  - text: Done.
"#;
    let run = place.run_script(script).arg("--config").arg(config);
    let mut run = run.env("OPENAI_API_KEY", "hidden-1");
    for name in SECRETS {
        run = run.env(name, "hidden-2");
    }
    let run = run.env("DATABASE_URL", "postgres://app:hidden-3@db/app");
    let run = run.env("SHOWN", "shown");
    run.args("--json go").end().ok();
    for seen in ["call-env", "keeper-env", "server-env"] {
        let path = place.work().join(seen);
        let seen = eventually(seen, || {
            let text = std::fs::read_to_string(&path).ok()?;
            text.contains("SHOWN=shown").then_some(text)
        });
        assert!(!seen.contains("hidden-"), "{}: {seen}", path.display());
    }
}
