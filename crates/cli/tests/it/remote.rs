//! Stops from another terminal: `ps`, `stop` and `receipt`, and robustness of the socket.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::chat_user::ChatUser;
use crate::support::terminal::Terminal;
use crate::support::{Allstop, Ended, FACT_MAX, Place, eventually};

/// Script with a turn whose command ignores SIGTERM, and with background work.
const SCRIPT: &str = r#"
turns:
  - when: server
    replies:
      - calls: [{tool: shell, arguments: {command: "echo up; sleep 600", background: true}}]
      - text: It is up.
  - when: everything
    replies:
      - calls:
          - {tool: shell, arguments: {command: "trap '' TERM; setsid sleep 600 & echo x > begun; sleep 600 & wait"}}
          - {tool: agent, arguments: {prompt: "dig deep"}}
      - text: Done.
  - when: elsewhere too
    replies:
      - calls:
          - {tool: shell, arguments: {command: "trap '' TERM; setsid sleep 600 & echo x > begun; sleep 600 & wait"}}
          - {tool: agent, arguments: {prompt: "dig deep"}}
          - {tool: slow__wait, arguments: {}}
      - text: Done.
  - when: call the tool
    replies:
      - calls: [{tool: slow__wait, arguments: {}}]
      - text: Done.
  - when: dig deep
    replies: [{text: Never., stall: first_token}]
  - when: hello
    replies: [{text: Hello there.}]
"#;

/// An MCP server whose calls end only when they are cancelled.
const SLOW_SERVER: &str = r#"
import json, sys
TOOL = {"name": "wait", "description": "Waits.", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    message = json.loads(line)
    result = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "ping": {},
        "server/discover": {},
    }.get(message["method"])
    if result is not None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        print(json.dumps(answer), flush=True)
    elif message["method"] == "tools/call":
        open("waits", "w").close()
    elif message["method"] == "notifications/cancelled":
        error = {"code": -32000, "message": "cancelled"}
        answer = {"jsonrpc": "2.0", "id": message["params"]["requestId"], "error": error}
        print(json.dumps(answer), flush=True)
"#;

/// Script with a command that needs a permission and then keeps running.
const ASKS: &str = r#"
turns:
  - when: ask
    replies:
      - calls: [{tool: shell, arguments: {command: "echo line 1; sleep 600"}}]
      - text: Done.
  - when: hello
    replies: [{text: Hello there.}]
"#;

pub(crate) fn command(place: &Place, args: &str) -> Ended {
    place.allstop().args(args).end()
}

pub(crate) fn stop(place: &Place, args: &str) -> Ended {
    let stop = place.allstop().args("stop").args(args);
    stop.arg("--store").arg(place.store()).end()
}

pub(crate) fn sockets(place: &Place) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(place.path("run/allstop"));
    let entries = folder.into_iter().flatten();
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Sends one request to a socket, and returns its answer.
pub(crate) fn exchange(socket: &Path, method: &str, params: &Value) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(FACT_MAX))?;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let body = body.to_string();
    let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(frame.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Sends one request to the only socket of the place, and returns its answer.
pub(crate) fn request(place: &Place, method: &str, params: &Value) -> String {
    let [socket] = sockets(place).try_into().expect("one socket");
    exchange(&socket, method, params).expect("an answer")
}

/// The stops in the object of `stop --all --json`.
fn stops(text: &str) -> Vec<Value> {
    let [all] = lines(text).try_into().expect("one object");
    let stops: &Value = &all["stops"];
    stops.as_array().expect("stops").clone()
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// A chat in the middle of a turn, with background work.
pub(crate) fn busy_chat(place: &Place) -> ChatUser<'_> {
    let chat = place.allstop().args("chat --yes --grace 500ms");
    busy(place, chat, "everything")
}

/// Writes a configuration with this MCP server.
fn with_server(place: &Place, source: &str) -> PathBuf {
    let server = place.file("slow.py", source);
    let server = server.display();
    let config = format!("[mcp.servers.slow]\ncommand = \"python3\"\nargs = [\"{server}\"]\n");
    place.file("slow.toml", config)
}

/// Like [`busy_chat`], but with a call of an MCP server.
fn busy_chat_with_server(place: &Place) -> ChatUser<'_> {
    let config = with_server(place, SLOW_SERVER);
    let chat = place.allstop().args("chat --yes --grace 500ms --config");
    let user = busy(place, chat.arg(config), "elsewhere too");
    let waits = place.work().join("waits");
    eventually("the call of the server", || waits.exists().then_some(()));
    user
}

fn busy<'a>(place: &'a Place, chat: Allstop<'_>, message: &str) -> ChatUser<'a> {
    let script = place.script(SCRIPT);
    let user = ChatUser::with_model(place, chat.arg("--model").arg(script), Terminal::new());
    user.types("server").waits_for("It is up.");
    user.types(message);
    let begun = place.work().join("begun");
    eventually("the deaf command", || begun.exists().then_some(()));
    eventually("the sub-agent", || {
        command(place, "ps")
            .stdout
            .contains("agent: dig deep")
            .then_some(())
    });
    user
}

#[test]
fn stop_of_all_has_one_receipt_in_both_terminals() {
    let place = Place::new();
    let user = busy_chat_with_server(&place);
    let preview = stop(&place, "--all --preview").ok().stdout;
    assert!(preview.contains("Would stop"), "{preview}");
    let stopped = stop(&place, "--all --json").ok();
    let [line] = stops(&stopped.stdout).try_into().expect("one session");
    let receipt = &line["receipt"];
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    let by = receipt["cause"]["by"].as_str().expect("who asked");
    assert!(by.starts_with("allstop stop in process "), "{by}");
    let items = receipt["items"].as_array().expect("items");
    for (kind, name) in [
        ("tool_call", "shell"),
        ("tool_call", "agent"),
        ("tool_call", "slow__wait"),
        ("background", "echo up; sleep 600"),
    ] {
        let is_it = |item: &&Value| item["kind"] == kind && item["name"] == name;
        let item = items.iter().find(is_it);
        let item = item.unwrap_or_else(|| panic!("no {name} in {receipt:#}"));
        assert_eq!(item["state"], "stopped", "{item:#}");
    }
    let shown = format!("stopped by {by}");
    user.waits_for("verified.").waits_for(&shown[..24]);
    // The session continues after the stop.
    user.types("hello")
        .waits_for("Hello there.")
        .presses("\x04");
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    assert_eq!(
        screen.matches("background work stopped by").count(),
        1,
        "{screen}"
    );
    place.assert_nothing_runs();
    assert!(
        sockets(&place).is_empty(),
        "the socket is gone with the process"
    );
    let none = command(&place, "ps").ok();
    let said = "no session is open, and the store has no work that was left running\n";
    assert_eq!(none.stdout, said);
}

/// A stop of all sessions also stops the background work of an idle session, and closes the session.
#[test]
fn stop_of_all_covers_an_idle_session() {
    let place = Place::new();
    let chat = place.allstop().args("chat --yes --grace 500ms --model");
    let chat = chat.arg(place.script(SCRIPT));
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("server").waits_for("It is up.");
    eventually("the end of the turn", || {
        let reports = lines(&command(&place, "ps --json").ok().stdout);
        (reports[0]["sessions"][0]["is_busy"] == false).then_some(())
    });
    let stopped = stop(&place, "--all --json").ok();
    let [line] = stops(&stopped.stdout).try_into().expect("one session");
    let items = line["receipt"]["items"].as_array().expect("items");
    let work = items.iter().find(|item| item["kind"] == "background");
    let work = work.unwrap_or_else(|| panic!("no work in {line:#}"));
    assert_eq!(work["state"], "stopped", "{line:#}");
    user.waits_for("verified.");
    stop(&place, "--all --extent session").ok();
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
}

/// A stop of two sessions: one stops completely. In the other, an MCP server does not confirm the end of a call, so the
/// stop fails. The chat goes on, so it keeps its server.
#[test]
fn stop_that_leaves_something_running_is_a_failure() {
    let place = Place::new();
    let deaf = SLOW_SERVER.replace("notifications/cancelled", "no/such/message");
    let config = with_server(&place, &deaf);
    let chat = place.allstop().args("chat --yes --grace 200ms --config");
    let chat = chat.arg(config).arg("--model").arg(place.script(SCRIPT));
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("call the tool");
    let run = place.run_script(SCRIPT).args("--grace 200ms");
    let run = run.arg("dig deep").start();
    let waits = place.work().join("waits");
    eventually("the call of the server", || waits.exists().then_some(()));
    eventually("two turns", || {
        let reports = lines(&command(&place, "ps --json").ok().stdout);
        let sessions = reports[0]["sessions"].as_array().expect("sessions");
        let mut busy = sessions.iter();
        (sessions.len() == 2 && busy.all(|session| session["is_busy"] == true)).then_some(())
    });
    stop(&place, "--all --preview").ok();
    let stopped = stop(&place, "--all --json");
    let receipts = stops(&stopped.stdout);
    let mut quiet: Vec<_> = receipts
        .iter()
        .map(|line| line["receipt"]["quiet"] == true)
        .collect();
    quiet.sort_unstable();
    assert_eq!(quiet, [false, true], "{receipts:#?}");
    assert_eq!((stopped.code, &*stopped.stderr), (1, ""), "{stopped:?}");
    assert_eq!(run.end(FACT_MAX).code, 130);
    user.types("/quit");
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    place.assert_nothing_runs();
}

#[test]
fn stop_ends_a_run_like_ctrl_c() {
    let place = Place::new();
    let run = place
        .run_script(SCRIPT)
        .args("--grace 200ms --json everything")
        .start();
    let begun = place.work().join("begun");
    eventually("the deaf command", || begun.exists().then_some(()));
    let stopped = stop(&place, "last --json").ok();
    let [line] = lines(&stopped.stdout).try_into().expect("one session");
    let ended = run.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{ended:?}");
    let envelope = ended.envelope();
    assert_eq!(envelope["stop_reason"], "cancelled", "{envelope:#}");
    assert_eq!(envelope["receipt"]["stop_id"], line["receipt"]["stop_id"]);
    assert_eq!(envelope["receipt"]["cause"]["kind"], "user");
    let logged = place
        .allstop()
        .args("receipt --json --store")
        .arg(place.store());
    let logged: Value = serde_json::from_str(&logged.end().ok().stdout).expect("JSON");
    assert_eq!(logged["cause"], line["receipt"]["cause"], "{logged:#}");
    place.assert_nothing_runs();
}

#[test]
fn session_is_closed_and_one_call_is_stopped() {
    let place = Place::new();
    let user = busy_chat(&place);
    let calls = lines(&command(&place, "ps --json").ok().stdout);
    let session = &calls[0]["sessions"][0];
    let work = session["work"].as_array().expect("work");
    let agent = work.iter().find(|item| item["name"] == "agent");
    let agent = agent.expect("a sub-agent")["id"].as_str().expect("an id");
    let id = session["session_id"].as_str().expect("an id");
    let stopped = stop(&place, &format!("{} --call {agent}", &id[20..])).ok();
    assert!(
        stopped.stdout.contains("agent: dig deep"),
        "{}",
        stopped.stdout
    );
    let unknown = stop(&place, &format!("{id} --call no_such_call"));
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(
        unknown.stdout.contains("call no_such_call was not found"),
        "{}",
        unknown.stdout
    );
    stop(&place, &format!("{id} --extent session --now")).ok();
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
    place.assert_nothing_runs();
}

/// The stop covers only the call, so the run continues with its next turn.
#[test]
fn stop_of_a_call_does_not_end_the_run() {
    let place = Place::new();
    let script = r#"
replies:
  - calls: [{tool: shell, arguments: {command: "trap '' TERM; echo x > begun; sleep 600"}}]
  - text: Next step.
  - text: Next turn.
"#;
    let run = place.run_script(script).args("--grace 300ms go --then on");
    let run = run.start();
    let begun = place.work().join("begun");
    eventually("the command", || begun.exists().then_some(()));
    let reports = lines(&command(&place, "ps --json").ok().stdout);
    let work = reports[0]["sessions"][0]["work"].as_array().expect("work");
    let call = work.iter().find(|item| item["name"] == "shell");
    let call = call.expect("a call")["id"].as_str().expect("an id");
    let stopped = stop(&place, &format!("last --call {call} --json")).ok();
    let [line] = lines(&stopped.stdout).try_into().expect("one session");
    assert_eq!(line["receipt"]["items"][0]["state"], "stopped", "{line:#}");
    let ended = run.end(FACT_MAX).ok();
    assert!(ended.stdout.contains("Next turn."), "{ended:?}");
    place.assert_nothing_runs();
}

/// A killed run leaves detached background work, and a socket without a process.
#[test]
fn detached_work_of_a_killed_run_is_stopped() {
    let place = Place::new();
    let run = place
        .run_script(SCRIPT)
        .args("--keep-background --json server")
        .end()
        .ok();
    let id = run.session();
    let shown = stop(&place, &format!("{id} --preview")).ok().stdout;
    assert!(shown.contains("echo up; sleep 600"), "{shown}");
    let stopped = stop(&place, "--all --json").ok();
    let [line] = stops(&stopped.stdout).try_into().expect("one session");
    assert_eq!(line["receipt"]["items"][0]["state"], "stopped", "{line:#}");
    assert_eq!(line["receipt"]["quiet"], true, "{line:#}");
    place.assert_nothing_runs();
    let shown = place.allstop().args("sessions show last --store");
    let shown = shown.arg(place.store()).end().ok().stdout;
    assert!(!shown.contains("its end is unknown"), "{shown}");
    let again = stop(&place, "--all").ok();
    let said =
        "nothing to stop: no session is open, and the store has no work that was left running\n";
    assert_eq!(again.stdout, said);
    // A socket without a listening process does not disturb the command, and is removed.
    let stale = place.path("run/allstop/4000000.sock");
    drop(UnixListener::bind(&stale).expect("a socket"));
    assert!(stale.exists());
    command(&place, "ps").ok();
    assert!(!stale.exists());
}

#[test]
fn unknown_and_missing_sessions_have_different_errors() {
    let place = Place::new();
    let none = stop(&place, "last");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(
        none.stderr.contains("no session is open"),
        "{}",
        none.stderr
    );
    place
        .run_script("replies: [{text: x}]")
        .arg("hi")
        .end()
        .ok();
    let unknown = stop(&place, "nosuchid");
    assert_eq!(unknown.code, 2, "{unknown:?}");
    let receipt = place
        .allstop()
        .args("receipt --store")
        .arg(place.store())
        .end();
    assert_eq!(receipt.code, 1, "{receipt:?}");
    assert!(receipt.stderr.contains("was stopped"), "{}", receipt.stderr);
}

/// Regression: `stop last` selected the chat that was opened last, although it was idle. So the running turn of another
/// chat was not stopped.
#[test]
fn last_is_the_session_that_is_active() {
    let place = Place::new();
    let user = busy_chat(&place);
    // This chat was opened later, but it is idle.
    let idle = place.allstop().args("chat --model");
    let script = place.script("replies: [{text: Hello.}]");
    let terminal = Terminal::new();
    let other = ChatUser::with_model(&place, idle.arg(script), terminal);
    other.types("hello").waits_for("Hello.").waits_until_idle();
    let none = stop(&place, "");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("allstop stop last"), "{none:?}");
    let reports = lines(&command(&place, "ps --json").ok().stdout);
    let mut sessions = reports[0]["sessions"].as_array().expect("sessions").iter();
    let busy = sessions.find(|session| session["is_busy"] == true);
    let busy = busy.expect("a busy session")["session_id"].as_str();
    let id = busy.expect("an id");
    let listed = place.allstop().args("sessions list --json --store");
    let listed = listed.arg(place.store()).end().ok().stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let listed = listed["sessions"].as_array().expect("a list");
    let number = listed
        .iter()
        .position(|session| session["session_id"] == id);
    let number = number.expect("it is listed") + 1;
    for named in ["last".to_owned(), number.to_string()] {
        let preview = stop(&place, &format!("{named} --preview")).ok().stdout;
        assert!(preview.contains(&id[18..]), "{named}: {preview}");
    }
    let preview = stop(&place, "last --preview").ok().stdout;
    assert!(preview.contains("agent: dig deep"), "{preview}");
    // Without `--now`: a busy machine may need more time to prove the end of the processes.
    let stopped = stop(&place, "last --json").ok();
    let [line] = lines(&stopped.stdout).try_into().expect("one session");
    assert_eq!(line["session_id"], id);
    other.presses("\x04");
    assert_eq!(other.chat.end(FACT_MAX).code, 0);
    user.waits_for("verified.").presses("\x04");
    user.leaves_chat();
}

/// A watching terminal answers the permission question of a chat. It then shows the answer, the stop and the end of the
/// turn.
#[test]
fn watch_shows_the_turn_and_answers_its_question() {
    let place = Place::new();
    let script = place.script(ASKS);
    let chat = place.allstop().args("chat --model");
    let user = ChatUser::with_model(&place, chat.arg(script), Terminal::new());
    user.types("ask").waits_for("? Allow");
    let terminal = Terminal::new();
    let watcher = place.allstop().args("watch last").env("TERM", "xterm");
    let watcher = watcher.on_screen(terminal.line()).start();
    terminal.wait("[y]es");
    terminal.type_keys("y\r");
    terminal.wait("yes, once");
    terminal.wait("line 1");
    user.waits_for("yes, once, answered by allstop watch in process")
        .waits_for("line 1");
    let lines = place.allstop().args("watch last --json").start();
    lines.wait_stdout("tool_started");
    stop(&place, "last").ok();
    terminal.wait("verified.");
    user.types("hello").waits_for("Hello there.");
    terminal.wait("Hello there.");
    user.presses("\x04");
    terminal.wait("was closed");
    assert_eq!(watcher.end(FACT_MAX).code, 0);
    let ended = lines.end(FACT_MAX);
    let events = ended.lines().into_iter();
    let events: Vec<_> = events.map(|line| line["event"].clone()).collect();
    assert!(events.contains(&json!("receipt")), "{events:?}");
    assert_eq!(events.last(), Some(&json!("session_ended")), "{events:?}");
    drop(user.leaves_chat());
}

/// A watching terminal that does not read its events cannot delay the session. Ctrl-C in a watching terminal stops no
/// work.
#[test]
fn stalled_watcher_holds_nothing_up() {
    use crate::support::Signal;

    let place = Place::new();
    let user = busy_chat(&place);
    let mut stalled = place.allstop().args("watch last --json").start();
    stalled.wait_stdout("tool_started");
    stalled.signal(Signal::STOP);
    let mut leaves = place.allstop().args("watch last").start();
    leaves.wait_stderr("watching session");
    leaves.signal(Signal::INT);
    let left = leaves.end(FACT_MAX).ok();
    assert!(
        left.stderr.contains("keeps running · to stop it"),
        "{}",
        left.stderr
    );
    stop(&place, "--all --now").ok();
    user.waits_for("verified.").presses("\x04");
    eventually("the end of the chat", || {
        sockets(&place).is_empty().then_some(())
    });
    stalled.signal(Signal::CONT);
    let told = stalled.end(FACT_MAX).ok();
    assert!(told.stdout.contains("session_ended"), "{}", told.stdout);
    let (ended, screen) = user.leaves_chat();
    assert_eq!(ended.code, 0, "{screen}");
}

/// Regression: `ps --watch` printed the control sequences that clear the screen as visible text.
#[test]
fn ps_that_watches_clears_the_terminal() {
    let place = Place::new();
    let terminal = Terminal::new();
    let ps = place.allstop().args("ps --watch").env("TERM", "xterm");
    let mut ps = ps.on_screen(terminal.line()).start();
    terminal.wait("no session is open");
    assert!(
        !terminal.all_shown().contains("u{1b}"),
        "{}",
        terminal.all_shown()
    );
    ps.signal(crate::support::Signal::INT);
    assert_eq!(ps.end(FACT_MAX).code, 130);
}
