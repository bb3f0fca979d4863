//! The tool `research`, which must be called as a task (revision 2025-11-25). Its argument `end` chooses the course of the
//! task, and `on_cancel` the reaction to `tasks/cancel`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::{answer, exit_now, send};

/// Id of the question of a task.
pub(super) const QUESTION: &str = "question of a task";

/// Id of the task that asks, and of the request that waits for its result.
static WAITING: Mutex<Option<(String, Value)>> = Mutex::new(None);

static TASKS: Mutex<Option<HashMap<String, Task>>> = Mutex::new(None);

struct Task {
    arguments: Value,
    status: &'static str,
    polls: usize,
    result: Value,
}

pub(super) fn tool() -> Value {
    json!({
        "name": "research", "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "required"},
    })
}

fn with_tasks<T>(then: impl FnOnce(&mut HashMap<String, Task>) -> T) -> T {
    then(TASKS.lock().expect("no panic").get_or_insert_default())
}

fn fail(id: &Value, code: i32, message: &str) {
    send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
}

fn shown(task_id: &str, status: &str) -> Value {
    json!({
        "taskId": task_id, "status": status, "ttl": 60_000, "pollInterval": 100,
        "createdAt": "2025-11-25T10:30:00Z", "lastUpdatedAt": "2025-11-25T10:30:00Z",
    })
}

pub(super) fn call(id: &Value, params: &Value) {
    if !params["task"].is_object() {
        return fail(id, -32601, "the tool needs a task");
    }
    if let Some(pause) = params["arguments"]["created_after_ms"].as_u64() {
        // The server reads no message before it has created the task.
        let (_nobody, never) = std::sync::mpsc::channel::<()>();
        let _never = never.recv_timeout(Duration::from_millis(pause));
    }
    let task_id = format!("task-{id}");
    let task = Task {
        arguments: params["arguments"].clone(),
        status: "working",
        polls: 0,
        result: json!({"content": [{"type": "text", "text": "found"}]}),
    };
    with_tasks(|tasks| tasks.insert(task_id.clone(), task));
    answer(id, &json!({"task": shown(&task_id, "working")}));
}

/// Handles a request for a task.
pub(super) fn request(id: &Value, method: &str, params: &Value) {
    let task_id = params["taskId"].as_str().unwrap_or_default().to_owned();
    match method {
        "tasks/get" => match with_tasks(|tasks| tasks.get_mut(&task_id).map(poll)) {
            Some("of another task") => answer(id, &shown("another", "cancelled")),
            Some(status) => answer(id, &shown(&task_id, status)),
            None => fail(id, -32602, "no such task"),
        },
        "tasks/cancel" => cancel(id, &task_id),
        _ => result(id, &task_id),
    }
}

fn poll(task: &mut Task) -> &'static str {
    task.polls += 1;
    let end = task.arguments["end"].as_str().unwrap_or_default();
    if task.polls == 2 && task.status == "working" {
        task.status = match end {
            "fail" | "tool_error" => "failed",
            "ask" => "input_required",
            "exit" => exit_now(),
            "never" => "working",
            _ => "completed",
        };
    }
    task.status
}

fn cancel(id: &Value, task_id: &str) {
    let reaction = with_tasks(|tasks| {
        let task = tasks.get_mut(task_id)?;
        let reaction = task.arguments["on_cancel"].as_str().unwrap_or("obey");
        task.status = match reaction {
            "obey" => "cancelled",
            "exit" => exit_now(),
            "finish" => "completed",
            "confuse" => "of another task",
            _ => task.status,
        };
        Some((reaction.to_owned(), task.status))
    });
    match reaction {
        Some((reaction, _)) if reaction == "ignore" => fail(id, -32603, "it cannot be cancelled"),
        Some((_, status)) => answer(id, &shown(task_id, status)),
        None => fail(id, -32602, "no such task"),
    }
}

fn result(id: &Value, task_id: &str) {
    let found = with_tasks(|tasks| {
        let task = tasks.get(task_id)?;
        Some((
            task.arguments["end"].clone(),
            task.status,
            task.result.clone(),
        ))
    });
    match found {
        Some((_, "input_required", _)) => {
            *WAITING.lock().expect("no panic") = Some((task_id.to_owned(), id.clone()));
            let schema = json!({
                "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
            });
            let params = json!({
                "message": "Your name?", "requestedSchema": schema,
                "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task_id}},
            });
            let method = "elicitation/create";
            send(&json!({"jsonrpc": "2.0", "id": QUESTION, "method": method, "params": params}));
        }
        Some((end, "failed", _)) if end == "fail" => fail(id, -32603, "no such library"),
        Some((_, "failed", _)) => {
            let content = [json!({"type": "text", "text": "the index is broken"})];
            answer(id, &json!({"content": content, "isError": true}));
        }
        Some((_, "completed", result)) => answer(id, &result),
        _ => fail(id, -32602, "no result"),
    }
}

/// Ends the task that asked. The client's answer becomes the result.
pub(super) fn answered(form: &Value) {
    let waiting = WAITING.lock().expect("no panic").take();
    let Some((task_id, id)) = waiting else { return };
    let content = [json!({"type": "text", "text": form.to_string()})];
    let result = json!({ "content": content });
    with_tasks(|tasks| {
        if let Some(task) = tasks.get_mut(&task_id) {
            task.status = "completed";
            task.result = result.clone();
        }
    });
    answer(&id, &result);
}
