//! An MCP server for tests, over standard input and output, written without a protocol library. The server logs its
//! input line by line, and misbehaves as requested.
//!
//! `allstop-tools-mcp-server LOG [hang|hang_later|refuse|die|endless|stubborn|deaf|silent|picky]`

mod task_tool;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Senders that cancel waiting calls, by the id of the request.
type Waiting = Arc<Mutex<HashMap<String, Sender<()>>>>;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(log), mode) = (args.next(), args.next().unwrap_or_default()) else {
        return ExitCode::FAILURE;
    };
    let Ok(mut log) = OpenOptions::new().create(true).append(true).open(log) else {
        return ExitCode::FAILURE;
    };
    let is_first = log.metadata().is_ok_and(|log| log.len() == 0);
    write(&mut log, &format!("started {}", std::process::id()));
    let mode = match mode.as_str() {
        "hang_later" if is_first => String::new(),
        "hang_later" => "hang".to_owned(),
        _ => mode,
    };
    match mode.as_str() {
        "die" => {
            say_error("no such database");
            return ExitCode::from(3);
        }
        "endless" => while print_raw(&[b'x'; 4096]) {},
        "stubborn" => ignore_term(),
        _ => {}
    }
    print_raw(b"this line is no message\n{\"neither\": \"is this\"}\n");
    let waiting = Waiting::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        write(&mut log, &line);
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        handle(&message, &mode, &waiting);
        if mode == "deaf" && message["method"] == "tools/list" {
            // Reads no further input.
            let (_nobody, never) = channel::<()>();
            let _never = never.recv_timeout(Duration::from_mins(1));
        }
    }
    write(&mut log, "end of input");
    if mode == "stubborn" {
        // The server receives no message here, so only a signal ends the server.
        let (_nobody, never) = channel::<()>();
        let _never = never.recv();
    }
    ExitCode::SUCCESS
}

fn handle(message: &Value, mode: &str, waiting: &Waiting) {
    let id = &message["id"];
    match message["method"].as_str().unwrap_or_default() {
        "server/discover" if mode == "silent" => {}
        "server/discover" if mode == "picky" =>
        {
            #[expect(
                clippy::exit,
                clippy::disallowed_methods,
                reason = "it ends when it gets an unknown request"
            )]
            std::process::exit(4)
        }
        "server/discover" => {
            let error = json!({"code": -32601, "message": "no such method"});
            send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        "initialize" if mode == "hang" => {}
        "initialize" if mode == "refuse" => {
            send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "not you"}}),
            );
        }
        "initialize" => answer(
            id,
            &json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "test", "version": "1"},
            }),
        ),
        "tools/list" => list(id),
        "" if id == "question" => {
            let asking = ASKING.lock().expect("no panic");
            let answered = message.get("result").unwrap_or(&message["error"]);
            answer_text(&asking, &answered.to_string());
        }
        "" if id == task_tool::QUESTION => task_tool::answered(&message["result"]),
        "tools/call" => call(id, &message["params"], waiting),
        method @ ("tasks/get" | "tasks/result" | "tasks/cancel") => {
            task_tool::request(id, method, &message["params"]);
        }
        "notifications/cancelled" => {
            let key = message["params"]["requestId"].to_string();
            let told = waiting.lock().expect("no panic").get(&key).cloned();
            if let Some(told) = told {
                // The send fails if the call has been answered in the meantime.
                let _unheard = told.send(());
            }
        }
        _ => {}
    }
}

/// Effect of a call of `change` on the list of tools.
#[derive(Default)]
struct Change {
    added: Option<Value>,
    removed: Value,
    /// Failure that replaces the answer to the next list request, if any.
    instead: Option<String>,
}

static CHANGE: Mutex<Change> = Mutex::new(Change {
    added: None,
    removed: Value::Null,
    instead: None,
});

/// Adds and removes a tool, and sends the requested number of notifications.
fn change(arguments: &Value) {
    let mut change = CHANGE.lock().expect("no panic");
    change.added = arguments.get("add").cloned();
    change.removed = arguments["remove"].clone();
    change.instead = arguments["instead"].as_str().map(str::to_owned);
    drop(change);
    for _ in 0..arguments["times"].as_u64().unwrap_or(1) {
        send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    }
}

fn list(id: &Value) {
    let mut change = CHANGE.lock().expect("no panic");
    match change.instead.take().as_deref() {
        Some("hang") => {}
        Some(_) => send(
            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "not now"}}),
        ),
        None => {
            let mut tools = tools();
            let list = tools.as_array_mut().expect("it is a list");
            list.retain(|tool| tool["name"] != change.removed);
            let added = change.added.iter();
            list.extend(added.map(|name| json!({"name": name, "inputSchema": {"type": "object"}})));
            // The answer allows clients to cache the list for some time. A change of the list ends this time.
            answer(
                id,
                &json!({"tools": tools, "ttlMs": 600_000, "cacheScope": "public"}),
            );
        }
    }
}

fn tools() -> Value {
    let any = json!({"type": "object"});
    json!([
        {"name": "echo", "description": "Says it again.", "inputSchema": {
            "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "annotations": {"readOnlyHint": true}},
        {"name": "wait", "inputSchema": any},
        {"name": "add", "inputSchema": any, "annotations": {"destructiveHint": false}},
        {"name": "put", "inputSchema": any, "annotations": {"idempotentHint": true}},
        {"name": "exit", "inputSchema": any},
        {"name": "mutter", "inputSchema": any},
        {"name": "dotted.name/x", "inputSchema": any},
        {"name": "fail", "inputSchema": any},
        {"name": "large", "inputSchema": any},
        {"name": "change", "inputSchema": any},
        task_tool::tool(),
    ])
}

/// Id of the call that waits for the answer to the server's question.
static ASKING: Mutex<Value> = Mutex::new(Value::Null);

/// Asks the person of the client for a value of this schema. The client's answer becomes the answer of the call.
fn ask(id: &Value, field: &Value) {
    *ASKING.lock().expect("no panic") = id.clone();
    let schema = json!({
        "type": "object", "properties": {"name": field}, "required": ["name"],
    });
    let params = json!({"message": "Your name?", "requestedSchema": schema});
    let method = "elicitation/create";
    send(&json!({"jsonrpc": "2.0", "id": "question", "method": method, "params": params}));
}

fn call(id: &Value, params: &Value, waiting: &Waiting) {
    let arguments = &params["arguments"];
    let text = match params["name"].as_str().unwrap_or_default() {
        "echo" => arguments["text"].as_str().unwrap_or_default().to_owned(),
        "research" => return task_tool::call(id, params),
        "wait" => return wait(id.clone(), params.clone(), waiting),
        "exit" => {
            say_error("the disk is full");
            leave(arguments);
            exit_now()
        }
        "mutter" if arguments["ask"] == true => return ask(id, &json!({"type": "string"})),
        "mutter" if arguments["ask"] == "nested" => {
            return ask(
                id,
                &json!({"type": "object", "properties": {"first": {"type": "string"}}}),
            );
        }
        "mutter" if arguments["reserved"] == true => {
            let data = json!({"$serde_json::private::RawValue": "[1]"});
            return answer(
                id,
                &json!({"content": [], "structuredContent": {"a": data}}),
            );
        }
        "mutter" if arguments["deep"] == true => {
            let deep = "[".repeat(1_000) + &"]".repeat(1_000);
            let content = r#"[{"type":"text","text":"deep"}]"#;
            let result = format!(r#"{{"content":{content},"structuredContent":{{"a":{deep}}}}}"#);
            print_raw(
                format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":{id}}}\n").as_bytes(),
            );
            return;
        }
        "mutter" => {
            print_raw(b"debug: got it\n\n[1, 2\n\xff\xfe\n");
            "muttered".to_owned()
        }
        "fail" => {
            let content = [json!({"type": "text", "text": "no such row"})];
            return answer(id, &json!({"content": content, "isError": true}));
        }
        "large" if arguments["leave"] == true => {
            answer_text(id, &"large ".repeat(20_000));
            leave(arguments);
            exit_now()
        }
        "large" => "large ".repeat(20_000),
        "change" => {
            change(arguments);
            "changed".to_owned()
        }
        _ => "done".to_owned(),
    };
    answer_text(id, &text);
}

/// Answers after `ms`; `on_cancel` chooses the reaction to a cancellation.
fn wait(id: Value, params: Value, waiting: &Waiting) {
    let (told, hears) = channel();
    let key = id.to_string();
    waiting.lock().expect("no panic").insert(key.clone(), told);
    let waiting = Arc::clone(waiting);
    #[expect(
        clippy::disallowed_methods,
        reason = "a server that waits in several calls"
    )]
    std::thread::spawn(move || {
        let arguments = &params["arguments"];
        let limit = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(60_000));
        for progress in arguments["progress"].as_array().into_iter().flatten() {
            let mut progress = progress.clone();
            progress["progressToken"] = params["_meta"]["progressToken"].clone();
            send(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
            );
        }
        let outcome = hears.recv_timeout(limit);
        match (outcome, arguments["on_cancel"].as_str().unwrap_or("ignore")) {
            (Ok(()), "silent") => {}
            (Ok(()), "result") => answer_text(&id, "cut short"),
            (Ok(()), "exit") => {
                leave(arguments);
                exit_now()
            }
            (Ok(()), "error") => {
                send(
                    &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32800, "message": "cancelled"}}),
                );
            }
            (Ok(()), _) => {
                // Continues as if no cancellation had arrived.
                let late = arguments["late_ms"].as_u64().unwrap_or(60_000);
                let _again = hears.recv_timeout(Duration::from_millis(late));
                answer_text(&id, "late answer");
            }
            (Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected), _) => {
                answer_text(&id, "waited");
            }
        }
        waiting.lock().expect("no panic").remove(&key);
    });
}

/// Starts a process that outlives the server and holds its output open, if the arguments want one.
fn leave(arguments: &Value) {
    if arguments["leave"] != true {
        return;
    }
    let left = std::process::Command::new("sleep").arg("60").spawn();
    say_error(&format!("left {}", left.expect("it starts").id()));
}

fn exit_now() -> ! {
    #[expect(
        clippy::exit,
        clippy::disallowed_methods,
        reason = "it is to die during a call"
    )]
    std::process::exit(3)
}

fn answer_text(id: &Value, text: &str) {
    answer(id, &json!({"content": [{"type": "text", "text": text}]}));
}

fn answer(id: &Value, result: &Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn send(message: &Value) {
    print_raw(format!("{message}\n").as_bytes());
}

/// Prints bytes. Returns true if the client still reads.
fn print_raw(bytes: &[u8]) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .is_ok()
}

fn say_error(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

fn write(log: &mut File, line: &str) {
    drop(writeln!(log, "{line}"));
}

/// Makes the server ignore SIGTERM, so that only SIGKILL ends it.
fn ignore_term() {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let entered = runtime.enter();
    drop(signal(SignalKind::terminate()).expect("the signal can be taken"));
    drop(entered);
    // The signal handler remains after the runtime is dropped.
    drop(runtime);
}
