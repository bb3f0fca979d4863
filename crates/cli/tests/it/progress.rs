//! Progress that an MCP server reports for a call, on a terminal and as events.

use serde_json::Value;

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::{Place, Signal};

/// An MCP server whose call sends very many progress messages, and then waits for its cancellation.
const SERVER: &str = r#"
import json, sys
TOOL = {"name": "build", "description": "Builds.", "inputSchema": {"type": "object"}}
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method == "initialize":
        send({"id": message["id"], "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "builder", "version": "1"},
        }})
    elif method == "server/discover":
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
    elif method == "tools/list":
        send({"id": message["id"], "result": {"tools": [TOOL]}})
    elif method == "tools/call":
        token = message["params"]["_meta"]["progressToken"]
        def progress(**params):
            send({"method": "notifications/progress", "params": {"progressToken": token, **params}})
        for done in range(10000):
            progress(progress=done, total=10000, message=f"\x1b[2Jcrate\n{done}")
        progress(progress=30, total=40, message="compiling the last crate of all crates")
        progress(progress=-1, total=40, message="nonsense")
    elif method == "notifications/cancelled":
        send({"id": message["params"]["requestId"], "error": {"code": -32000, "message": "cancelled"}})
"#;

const SCRIPT: &str = "
replies:
  - calls: [{tool: builder__build, arguments: {}}]
  - text: Built.
";

fn config(place: &Place) -> std::path::PathBuf {
    let server = place.file("builder.py", SERVER);
    let server = server.display();
    let config = format!("[mcp.servers.builder]\ncommand = \"python3\"\nargs = [\"{server}\"]\n");
    place.file("builder.toml", config)
}

#[test]
fn running_call_shows_a_bar_that_fits_the_width() {
    for (columns, bar) in [
        (40, "██████░░  75 %  compiling the last…"),
        (
            82,
            "██████████████░░░░░  75 %  compiling the last crate of all crates",
        ),
    ] {
        let place = Place::new();
        let terminal = Terminal::new();
        terminal.resize((columns, 24));
        let chat = place.allstop().args("chat --yes --config");
        let chat = chat.arg(config(&place)).arg("--model");
        let user = ChatUser::with_model(&place, chat.arg(place.script(SCRIPT)), terminal);
        user.types("go").waits_for(bar);
        assert!(
            user.screen().contains("builder__build"),
            "{}",
            user.screen()
        );
        user.presses(CTRL_C).waits_for("Nothing is left running");
        let last = user.screen();
        assert!(!last.contains("75 %"), "the bar is gone: {last}");
        assert!(!last.contains("nonsense"), "{last}");
        user.presses(CTRL_D);
        user.leaves_chat();
    }
}

#[test]
fn events_have_the_numbers_and_a_flood_is_thinned_out() {
    let place = Place::new();
    let run = place.run_unasked().arg("--model").arg(place.script(SCRIPT));
    let run = run.args("--yes --stream-json --config").arg(config(&place));
    let running = run.arg("go").start();
    running.wait_stdout("compiling the last crate");
    let intervals = running.begin().elapsed().as_millis() / 50;
    let ended = running.end_by(Signal::INT);
    assert_eq!(ended.code, 130, "{ended:#?}");
    let events = ended.lines();
    let is_progress = |event: &&Value| event["event"] == "tool_progress";
    let progress: Vec<_> = events.iter().filter(is_progress).collect();
    assert!(
        progress.len() as u128 <= intervals + 2,
        "{}",
        progress.len()
    );
    let last = progress.last().unwrap();
    assert_eq!(
        (&last["progress"], &last["total"], &last["message"]),
        (
            &30.0.into(),
            &40.0.into(),
            &"compiling the last crate of all crates".into()
        ),
        "{last}"
    );
}
