//! Questions of MCP servers: a chat answers them, and a run without a terminal declines and lists them.

use crate::support::Place;
use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;

/// A server whose call asks for a name and a colour, and returns the answer.
const SERVER: &str = r#"
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
SCHEMA = {"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "title": "Name\x1b[2J"},
    "colour": {"type": "string", "enum": ["red", "green"], "default": "green"}}}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        send({"id": message["id"], "result": {"protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "tools/list":
        tool = {"name": "greet", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        send({"id": message["id"], "result": {"tools": [tool]}})
    elif method == "tools/call":
        call = message["id"]
        send({"id": "q", "method": "elicitation/create",
            "params": {"message": "Who are you?", "requestedSchema": SCHEMA}})
    elif method is None and message.get("id") == "q":
        with open("answer.json", "w") as file: json.dump(message["result"], file, sort_keys=True)
        send({"id": call, "result": {"content": [{"type": "text", "text": "done"}]}})
    elif method is not None and "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
"#;

pub(crate) const SCRIPT: &str = "
replies:
  - calls: [{tool: s__greet, arguments: {}}]
  - text: Greeted.
";

pub(crate) fn config(place: &Place) -> String {
    config_of(place, SERVER)
}

fn config_of(place: &Place, server: &str) -> String {
    let server = place.file("server.py", server);
    let server = server.display();
    let config = format!("[mcp.servers.s]\ncommand = \"python3\"\nargs = [\"{server}\"]\n");
    format!("--config {}", place.file("s.toml", config).display())
}

fn chat(place: &Place) -> ChatUser<'_> {
    chat_with(place, "")
}

fn chat_with<'a>(place: &'a Place, flags: &str) -> ChatUser<'a> {
    let chat = place.allstop().arg("chat").args(&config(place)).args(flags);
    let chat = chat.arg("--model").arg(place.script(SCRIPT));
    ChatUser::with_model(place, chat, Terminal::new())
}

pub(crate) fn answer(place: &Place) -> String {
    std::fs::read_to_string(place.work().join("answer.json")).expect("the server has the answer")
}

#[test]
fn user_of_a_chat_fills_in_the_form() {
    let place = Place::new();
    let user = chat(&place);
    user.types("hello").waits_for("Who are you?");
    user.waits_for("type /answer TEXT, or /refuse");
    user.types("/answer").waits_for("a text");
    user.types("/answer Ada").waits_for("one of red, green");
    user.types("/answer").waits_for("answered");
    user.waits_for("Greeted.");
    assert_eq!(
        answer(&place),
        r#"{"action": "accept", "content": {"colour": "green", "name": "Ada"}}"#
    );
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

/// A text such as `no` does not agree to open a page.
#[test]
fn page_is_agreed_to_without_a_text() {
    let page = r#""mode": "url", "elicitationId": "1", "url": "https://a.example/b""#;
    let server = SERVER
        .replace(r#""requestedSchema": SCHEMA"#, page)
        .replace("2025-06-18", "2025-11-25");
    let place = Place::new();
    let chat = place
        .allstop()
        .arg("chat")
        .args(&config_of(&place, &server));
    let chat = chat.arg("--model").arg(place.script(SCRIPT));
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("hello").waits_for("https://a.example/b");
    user.types("/answer no").waits_for("takes no text");
    user.types("/answer").waits_for("Greeted.");
    assert_eq!(answer(&place), r#"{"action": "accept"}"#);
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

/// An answer to permission questions in advance is no answer to the question of a server.
#[test]
fn user_of_a_chat_with_yes_gets_the_form() {
    let place = Place::new();
    let user = chat_with(&place, "--yes");
    user.types("hello").waits_for("Who are you?");
    user.types("/refuse").waits_for("Greeted.");
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn user_of_a_chat_refuses_the_form() {
    let place = Place::new();
    let user = chat(&place);
    user.types("hello").waits_for("Who are you?");
    user.types("/refuse").waits_for("Greeted.");
    assert_eq!(answer(&place), r#"{"action": "decline"}"#);
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn stop_of_the_turn_ends_the_question() {
    let place = Place::new();
    let user = chat(&place);
    user.types("hello").waits_for("Who are you?");
    user.presses(CTRL_C).waits_until_idle();
    assert_eq!(answer(&place), r#"{"action": "cancel"}"#);
    user.types("/answer Ada")
        .waits_for("no server asks a question");
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn run_without_a_terminal_declines_and_lists_the_question() {
    let place = Place::new();
    let args = format!("{} --json hello", config(&place));
    let ended = place.run_script(SCRIPT).args(&args).end().ok();
    assert_eq!(answer(&place), r#"{"action": "decline"}"#);
    let denials = &ended.envelope()["denials"];
    let reason = denials[0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("a question of the server `s` was declined"),
        "{denials}"
    );
    assert!(reason.contains("`allstop chat` at a terminal"), "{denials}");
}

/// A program that writes to a chat cannot read the form, so the chat does not wait for an answer.
#[test]
fn chat_without_a_terminal_declines_and_names_the_question() {
    let place = Place::new();
    let input = place.file("input", "hello\n");
    let input = std::fs::File::open(input).expect("the file");
    let chat = place.allstop().arg("chat").args(&config(&place));
    let chat = chat.arg("--model").arg(place.script(SCRIPT));
    let ended = chat.stdin(std::process::Stdio::from(input)).end().ok();
    assert_eq!(answer(&place), r#"{"action": "decline"}"#);
    let said = "a question of the server `s` was declined: no terminal";
    let shown = ended.stdout + &ended.stderr;
    assert!(shown.contains(said), "{shown}");
    assert!(shown.contains("Greeted."), "{shown}");
}
