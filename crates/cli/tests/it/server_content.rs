//! Resources and prompts of MCP servers in the messages of a chat.

use crate::support::Place;
use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;

/// A server with a resource, a prompt, and a resource without an answer.
const SERVER: &str = r#"
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    result = None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"},
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}}}
    elif method == "tools/list":
        result = {"tools": []}
    elif method == "resources/list":
        result = {"resources": [{"uri": "memo:plan", "name": "plan"}]}
    elif method == "prompts/list":
        arguments = [{"name": "file", "required": True}, {"name": "tone"}]
        result = {"prompts": [{"name": "review", "arguments": arguments}]}
    elif method == "resources/read" and params["uri"] == "memo:plan":
        result = {"contents": [{"uri": "memo:plan", "text": "ship on Friday"}]}
    elif method == "resources/read" and params["uri"] == "memo:never":
        continue
    elif method == "prompts/get":
        text = "Review %(file)s in a %(tone)s tone." % params["arguments"]
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if result is not None:
        send({"id": message["id"], "result": result})
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32602, "message": "no such thing"}})
"#;

/// The answer of the model shows that the message contains the content.
const SCRIPT: &str = "
turns:
  - {when: ship on Friday, replies: [{text: Read the plan.}]}
  - {when: Review a b.md in a kind and calm tone., replies: [{text: Reviewed.}]}
replies: [{text: Plain.}]
";

fn chat(place: &Place) -> ChatUser<'_> {
    let server = place.file("server.py", SERVER);
    let server = server.display();
    let config = format!("[mcp.servers.notes]\ncommand = \"python3\"\nargs = [\"{server}\"]\n");
    let config = place.file("s.toml", config);
    let chat = place.allstop().arg("chat").arg("--config").arg(config);
    let chat = chat.arg("--model").arg(place.script(SCRIPT));
    ChatUser::with_model(place, chat, Terminal::new())
}

#[test]
fn message_contains_the_resources_that_it_names() {
    let place = Place::new();
    let user = chat(&place);
    user.presses("see @notes:m\t").waits_for("@notes:memo:plan");
    user.presses("\r").waits_for("Read the plan.");
    user.waits_for("[resource notes:memo:plan, 14 bytes]");
    // Another name with a colon is text.
    user.types("mail @user:x").waits_for("Plain.");
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn command_of_a_prompt_sends_the_prompt() {
    let place = Place::new();
    let user = chat(&place);
    user.presses("/mcp:n\t").waits_for("/mcp:notes:review");
    user.presses("'a b.md' kind and calm\r");
    user.waits_for("Reviewed.");
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn message_with_a_wrong_name_is_not_sent_and_returns_to_the_line() {
    let place = Place::new();
    let user = chat(&place);
    user.types("read @notes:memo:none");
    user.waits_for("refused it: no such thing");
    user.clears_line().types("/mcp:notes:nosuch");
    user.waits_for("has no prompt `nosuch`; it has review");
    user.clears_line().types("/mcp:notes:review");
    user.waits_for("the argument `file` is missing; usage: /mcp:notes:review FILE [TONE]");
    user.clears_line().types("/mcp:other:x");
    user.waits_for("the servers are notes");
    user.clears_line().presses(CTRL_D);
    user.leaves_chat().0.ok();
}

#[test]
fn stop_ends_the_wait_for_a_resource() {
    let place = Place::new();
    let user = chat(&place);
    user.types("read @notes:memo:never").types("later");
    user.waits_for("waits: later");
    user.presses(CTRL_C)
        .waits_for("waiting messages are back on the input line");
    user.presses_until(CTRL_C, "line cleared");
    user.types("hello").waits_for("Plain.");
    user.presses(CTRL_D);
    user.leaves_chat().0.ok();
}
