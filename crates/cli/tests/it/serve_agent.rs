//! `allstop serve` with the agent of the configuration and its tools.

use std::time::Duration;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal, processes};

fn script(place: &Place) -> String {
    place.script(&format!(
        "turns:\n\
         - when: sleep\n\
         \x20 replies:\n\
         \x20   - calls: [{{tool: shell, arguments: {{command: \"{sleeper}\"}}}}]\n\
         \x20   - text: Slept.\n\
         - when: background\n\
         \x20 replies:\n\
         \x20   - calls: [{{tool: shell, arguments: {{command: \"{sleeper}\", background: true}}}}]\n\
         \x20   - text: It runs.\n\
         - when: stall\n\
         \x20 replies: [{{text: Never, stall: mid_stream}}]\n\
         replies: [{{text: First.}}, {{text: Second.}}]\n",
        sleeper = place.sleeper()
    ))
}

fn serve(place: &Place, flags: &str) -> Server {
    Server::start_with(place, &format!("--model {} {flags}", script(place)))
}

/// Sends a text to the context `c1`, or to the given task. Returns the task in the answer.
fn send(server: &Server, id: &str, text: &str, task: Option<&str>, at_once: bool) -> Value {
    let mut body = json!({
        "configuration": {"returnImmediately": at_once},
        "message": {
            "messageId": id, "role": "ROLE_USER", "contextId": "c1", "parts": [{"text": text}],
        },
    });
    if let Some(task) = task {
        body["message"]["taskId"] = task.into();
    }
    let sent = server.request("POST /message:send", &body.to_string());
    let (status, body) = sent.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["task"].clone()
}

fn state_of(server: &Server, id: &str) -> Value {
    server.get(&format!("/tasks/{id}"))["status"]["state"].clone()
}

fn id_of(task: &Value) -> &str {
    task["id"].as_str().expect("an id")
}

/// True if the shell command of the script is running.
fn sleeps(place: &Place) -> bool {
    let found = processes::of_mark_or_command(place.mark(), place.sleeper());
    found
        .iter()
        .any(|process| process.command.contains(place.sleeper()))
}

#[test]
fn context_is_a_conversation_that_outlives_the_server() {
    let place = Place::new();
    for (message, answer) in [("m1", "First."), ("m2", "Second.")] {
        let server = serve(&place, "");
        let task = send(&server, message, "hello", None, false);
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], answer);
        assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    }
    assert_eq!(place.only_session(), "context-c1");
}

#[test]
fn stop_of_an_allowed_call_kills_its_process_and_names_it() {
    let place = Place::new();
    let server = serve(&place, "");
    let asked = send(&server, "m1", "sleep", None, false);
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let id = id_of(&asked);
    let replied = send(&server, "m2", "yes", Some(id), true);
    assert_ne!(replied["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    eventually("the command runs", || {
        let works = state_of(&server, id) == "TASK_STATE_WORKING";
        (works && sleeps(&place)).then_some(())
    });
    let stopped = server.request(&format!("POST /tasks/{id}:cancel"), "{}");
    let stopped: Value = serde_json::from_str(&stopped.expect("an answer").1).expect("JSON");
    let receipt = &stopped["metadata"]["https://allstop.dev/a2a/receipt/v1"]["receipt"];
    assert_eq!(receipt["quiet"], true, "{receipt}");
    let items = receipt["items"].as_array().expect("items");
    let shell = items.iter().find(|item| item["name"] == "shell");
    let shell = shell.unwrap_or_else(|| panic!("the shell is in the receipt: {receipt}"));
    assert_eq!(shell["state"], "stopped");
    assert_eq!(shell["verified"], "process_tree_empty", "{shell}");
    assert!(!sleeps(&place));
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn signal_ends_tasks_and_background_work() {
    let place = Place::new();
    let server = serve(&place, "--yes");
    let working = send(&server, "m1", "background", None, true);
    eventually("its turn is committed, and its command runs", || {
        let task = server.get(&format!("/tasks/{}", id_of(&working)));
        (task["artifacts"].is_array() && sleeps(&place)).then_some(())
    });
    let stalled = send(&server, "m2", "stall", None, true);
    eventually("the second task waits or works", || {
        (state_of(&server, id_of(&stalled)) != "TASK_STATE_UNSPECIFIED").then_some(())
    });
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(place.leftovers().is_empty(), "{}", ended.stderr);
    let server = serve(&place, "--yes");
    for task in [&working, &stalled] {
        assert_eq!(state_of(&server, id_of(task)), "TASK_STATE_CANCELED");
    }
    assert_eq!(server.running.end_by(Signal::INT).code, 130);
}

#[test]
fn killed_server_leaves_no_task_working() {
    let place = Place::new();
    let mut server = serve(&place, "--yes");
    let task = send(&server, "m1", "sleep", None, true);
    eventually("the command runs", || sleeps(&place).then_some(()));
    server.running.signal(Signal::KILL);
    server.running.end_by(Signal::KILL);
    let server = serve(&place, "--yes");
    eventually("the task has failed", || {
        (state_of(&server, id_of(&task)) == "TASK_STATE_FAILED").then_some(())
    });
    assert!(!sleeps(&place));
    let url = format!("--server http://{}", server.address);
    let stop = place
        .allstop()
        .args(&format!("tasks stop {} {url}", id_of(&task)));
    let stop = stop.end();
    assert_eq!(stop.code, 1, "nothing was verified: {}", stop.stderr);
    assert!(
        stop.stderr.contains("it is unknown whether"),
        "{}",
        stop.stderr
    );
    let next = send(&server, "m2", "hello", None, false);
    assert_eq!(next["status"]["state"], "TASK_STATE_COMPLETED", "{next}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn wrong_model_is_a_usage_error() {
    let place = Place::new();
    let missing = place.allstop().args("serve --store").arg(place.store());
    let ended = missing.end();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("no model is configured"),
        "{}",
        ended.stderr
    );
    let wrong = place
        .allstop()
        .args("serve --model script:nothing.yaml --store");
    let ended = wrong.arg(place.store()).end();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
}

#[test]
fn drained_server_lets_running_tasks_end() {
    let place = Place::new();
    let gate = place.path("gate");
    let command = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    let model = place.script(&format!(
        "replies:\n- calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]\n- text: Done.\n"
    ));
    let flags = format!("--yes --model {model} --drain 1m");
    let mut server = Server::start_with(&place, &flags);
    let task = send(&server, "m1", "wait", None, true);
    eventually("it works", || {
        (state_of(&server, id_of(&task)) == "TASK_STATE_WORKING").then_some(())
    });
    server.running.signal(Signal::TERM);
    eventually("it is not ready", || {
        let (status, _) = server.request("GET /readyz", "")?;
        (status == 503).then_some(())
    });
    // During the drain, the server still answers all requests except new messages.
    assert_eq!(state_of(&server, id_of(&task)), "TASK_STATE_WORKING");
    let message = json!({"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "no"}]});
    let body = json!({"message": message}).to_string();
    let (status, _) = server
        .request("POST /message:send", &body)
        .expect("an answer");
    assert!(status >= 400, "{status}");
    place.file("gate", "");
    let ended = server.running.end_by(Signal::CONT);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("draining for up to 1m"),
        "{}",
        ended.stderr
    );
    let server = Server::start_with(&place, &flags);
    assert_eq!(state_of(&server, id_of(&task)), "TASK_STATE_COMPLETED");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// A client that waits for a queued task learns that the task has not started.
#[test]
fn queued_task_waits_for_the_next_start_of_the_server() {
    let place = Place::new();
    let flags = "--yes --max-tasks 1 --queue 5";
    let mut server = serve(&place, flags);
    let running = send(&server, "m1", "sleep", None, true);
    eventually("the command runs", || sleeps(&place).then_some(()));
    let queued = send(&server, "m2", "hello", None, true);
    let address = server.address.clone();
    let told = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| crate::serve::send(&address, "m3"));
        eventually("both wait", || (server.tasks().len() == 3).then_some(()));
        server.running.signal(Signal::TERM);
        waiting.join().expect("no panic").expect("an answer")["task"].take()
    });
    assert_eq!(told["status"]["state"], "TASK_STATE_SUBMITTED", "{told}");
    let ended = server.running.end(FACT_MAX);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let said = "1 task was stopped; 2 queued tasks stay in the store, and the next start runs them; \
                nothing is left running";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    server = serve(&place, flags);
    assert_eq!(state_of(&server, id_of(&running)), "TASK_STATE_CANCELED");
    for task in [&queued, &told] {
        eventually("it has run", || {
            (state_of(&server, id_of(task)) == "TASK_STATE_COMPLETED").then_some(())
        });
    }
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// Two signals within a tenth of a second count as one.
const OTHER_SIGNAL: Duration = Duration::from_millis(150);

#[expect(
    clippy::disallowed_methods,
    reason = "the time between the signals decides"
)]
fn signal_again(server: &mut Server) {
    std::thread::sleep(OTHER_SIGNAL);
    server.running.signal(Signal::TERM);
}

/// Starts a task in a server with a drain of a minute, and sends the first signal. The command of the task needs half a
/// second after SIGTERM, and then creates the file `graceful`.
fn draining(place: &Place) -> (Server, Value) {
    let file = place.path("graceful");
    let command = format!(
        "trap 'sleep 0.5; touch {}; exit' TERM; touch {}; while :; do sleep 0.02; done",
        file.display(),
        place.path("begun").display()
    );
    let model = place.script(&format!(
        "replies:\n- calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]\n- text: Done.\n"
    ));
    let flags = format!("--yes --model {model} --drain 1m --grace 20s");
    let mut server = Server::start_with(place, &flags);
    let task = send(&server, "m1", "work", None, true);
    eventually("the command runs", || {
        place.path("begun").exists().then_some(())
    });
    server.running.signal(Signal::TERM);
    eventually("it drains", || {
        let (status, _) = server.request("GET /readyz", "")?;
        (status == 503).then_some(())
    });
    signal_again(&mut server);
    (server, task)
}

#[test]
fn second_signal_of_a_drain_stops_the_tasks_with_the_grace() {
    let place = Place::new();
    let (server, task) = draining(&place);
    let ended = server.running.end(FACT_MAX);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(place.path("graceful").exists(), "{}", ended.stderr);
    let summary = "1 task was stopped; nothing is left running";
    assert!(ended.stderr.contains(summary), "{}", ended.stderr);
    let server = serve(&place, "");
    assert_eq!(state_of(&server, id_of(&task)), "TASK_STATE_CANCELED");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn third_signal_of_a_drain_uses_force() {
    let place = Place::new();
    let (mut server, task) = draining(&place);
    signal_again(&mut server);
    let ended = server.running.end(FACT_MAX);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(!place.path("graceful").exists(), "{}", ended.stderr);
    // The exit waits only a short time for the store. The printed report must be true in any case. The next start of
    // the server writes missing records.
    let is_stored = ended.stderr.contains("nothing is left running");
    let server = serve(&place, "");
    eventually("the task has ended", || {
        let state = state_of(&server, id_of(&task));
        let is_late = !is_stored && state == "TASK_STATE_FAILED";
        (state == "TASK_STATE_CANCELED" || is_late).then_some(())
    });
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// Regression: the report was `no task was stopped`, next to a receipt with the stopped call of the task.
#[test]
fn report_of_a_shutdown_names_tasks_that_wait_for_an_answer() {
    let place = Place::new();
    let server = serve(&place, "");
    let asked = send(&server, "m1", "sleep", None, false);
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let ended = server.running.end_by(Signal::TERM);
    let summary = "no running task was stopped; nothing is left running; the receipt lists the work of waiting tasks";
    for text in [summary, "permission question: stopped"] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
}

/// Converts all numbers to doubles, like the numbers in the metadata of the A2A protocol.
fn with_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(values) => values.iter().map(with_doubles).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| (key.clone(), with_doubles(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Stops the turn of the only session from another terminal. Returns the receipt of this stop.
fn stop_turn(place: &Place) -> Value {
    let session = place.only_session();
    let stopped = place.allstop().args("stop --extent turn --json");
    let stopped = stopped.arg(session).start().end(FACT_MAX);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let report: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
    report["receipt"].clone()
}

/// Asserts that the task has ended with the receipt that the other terminal got.
fn assert_stopped_with(server: &Server, id: &str, receipt: &Value) {
    let task = eventually("the task ends", || {
        let task = server.get(&format!("/tasks/{id}"));
        (task["status"]["state"] == "TASK_STATE_CANCELED").then_some(task)
    });
    let entry = &task["metadata"]["https://allstop.dev/a2a/receipt/v1"];
    assert_eq!(with_doubles(&entry["receipt"]), with_doubles(receipt));
    assert_eq!(entry["cause"], receipt["cause"]);
}

#[test]
fn turn_that_is_stopped_from_a_terminal_ends_its_task() {
    for replies in [false, true] {
        let place = Place::new();
        let server = serve(&place, "");
        let asked = send(&server, "m1", "sleep", None, false);
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        let id = id_of(&asked);
        if replies {
            send(&server, "m2", "yes", Some(id), true);
            eventually("the command runs", || sleeps(&place).then_some(()));
        }
        let receipt = stop_turn(&place);
        assert_stopped_with(&server, id, &receipt);
        assert!(!sleeps(&place));
        assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    }
}

#[test]
fn work_that_outlives_its_task_is_stopped_through_the_task() {
    let place = Place::new();
    let server = serve(&place, "--yes --background-wait 0s");
    let task = send(&server, "m1", "background", None, false);
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    let says = task["status"]["message"]["parts"][0]["text"].as_str();
    assert!(says.unwrap().starts_with("Still running: sleep"), "{task}");
    let id = id_of(&task);
    let tasks = |args: &str| {
        let url = format!("http://{}", server.address);
        let tasks = place.allstop().args("tasks --server").arg(url);
        let tasks = tasks.args(&format!("{args} {id} --json"));
        tasks.start().end(FACT_MAX)
    };
    let preview = tasks("preview");
    let preview: Value = serde_json::from_str(&preview.stdout).expect("JSON");
    assert_eq!(preview["items"][0]["id"], "bg_1", "{preview}");
    let stopped = tasks("stop");
    assert_eq!(stopped.code, 0, "{stopped:?}");
    let report: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
    assert_eq!(report["receipt"]["items"][0]["id"], "bg_1", "{report}");
    assert_eq!(report["receipt"]["quiet"], true);
    assert_eq!(report["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(!sleeps(&place));
    let (_, metrics) = server.request("GET /metrics", "").expect("an answer");
    for counted in [
        "allstop_stops_total{cause=\"user\"} 1\n",
        "allstop_stop_receipts_total{quiet=\"true\"} 1\n",
    ] {
        assert!(metrics.contains(counted), "{metrics}");
    }
    let again = tasks("stop");
    assert!(again.stderr.contains("nothing to stop"), "{again:?}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

#[test]
fn files_with_secrets_that_the_flags_name_are_out_of_reach_of_the_agent() {
    let place = Place::new();
    let tokens = place.work().join("tokens");
    let hash = "2bd806c97f0e00af1a1fc3328fa763a9269723c8db8fac4f93af71db186d6e90";
    std::fs::write(&tokens, format!("alice {hash}\n")).expect("writable");
    std::fs::write(place.work().join("notes"), "hello").expect("writable");
    let model = place.script(
        "replies: [{calls: [{tool: read, arguments: {path: tokens}}, {tool: read, arguments: {path: notes}}]}, {text: Read.}]",
    );
    let flags = format!("--model {model} --token-file {}", tokens.display());
    let server = Server::start_with(&place, &flags);
    let body = json!({"message": {
        "messageId": "m1", "contextId": "c1", "role": "ROLE_USER", "parts": [{"text": "read"}],
    }});
    let head = "POST /message:send HTTP/1.1\r\nauthorization: Bearer alice\r\nx: ";
    let (status, body) = server.request(head, &body.to_string()).expect("an answer");
    assert_eq!(status, 200, "{body}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    let session = place.only_session();
    let shown = place.allstop().args("sessions show --json --full --store");
    let shown = shown.arg(place.store()).arg(&session).end().ok();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let result = |call: usize| {
        shown["calls"][call]["result"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(result(1).contains("hello"), "{shown:#}");
    assert!(!result(0).contains(hash), "{shown:#}");
    assert_eq!(shown["calls"][0]["is_error"], true, "{shown:#}");
}

/// Starts a task with this command, which writes the file `begun`. Kills the server together with the keeper of the
/// command, and starts the server again. Returns the new server and the id of the task.
fn restarted_after_kill(place: &Place, command: &str) -> (Server, String) {
    let script = place.script(&format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]}}]"
    ));
    let serve = || Server::start_with(place, &format!("--model {script} --yes"));
    let server = serve();
    let task = send(&server, "m1", "hello", None, true);
    let id = id_of(&task).to_owned();
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    server.running.end_with_keeper(place);
    (serve(), id)
}

/// Regression: the receipt of a stop just after the restart was quiet, while the processes of the task ran. The stop came
/// before the task had failed because of the crash.
#[test]
fn early_stop_of_a_task_of_a_killed_server_ends_its_processes() {
    let place = Place::new();
    let (server, id) = restarted_after_kill(&place, "sleep 600 & echo x > begun; wait");
    let answer = server.request(&format!("POST /tasks/{id}:cancel"), "{}");
    let (status, body) = answer.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let task: Value = serde_json::from_str(&body).expect("JSON");
    let of_stop = &task["metadata"]["https://allstop.dev/a2a/receipt/v1"];
    let receipt = of_stop.get("leftWork").unwrap_or(&of_stop["receipt"]);
    assert_eq!(receipt["quiet"], true, "{task:#}");
    let items = receipt["items"].as_array().expect("items");
    let stopped = items.iter().find(|item| item["id"] == "bg_1");
    assert!(
        stopped.is_some_and(|item| item["state"] == "stopped"),
        "{task:#}"
    );
    assert!(!sleeps(&place), "{task:#}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}

/// The server and the keeper of a command are killed together. Regression: the preview of a stop answered
/// `already_ended` and `quiet: true`, while the processes of the task ran.
#[test]
fn processes_of_a_killed_server_belong_to_their_task() {
    let place = Place::new();
    let command = "trap '' TERM; setsid sleep 600 & echo x > begun; wait";
    let (server, id) = restarted_after_kill(&place, command);
    eventually("the task has failed", || {
        (state_of(&server, &id) == "TASK_STATE_FAILED").then_some(())
    });
    let receipt = |action: &str| {
        let answer = server.request(&format!("POST /tasks/{id}:{action}"), "{}");
        let (status, body) = answer.expect("an answer");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let preview = receipt("previewCancel");
    assert_eq!(preview["quiet"], false, "{preview:#}");
    assert!(preview.get("outcome").is_none(), "{preview:#}");
    assert_eq!(preview["items"][0]["state"], "still_running", "{preview:#}");
    let stopped = receipt("cancel");
    let left = &stopped["metadata"]["https://allstop.dev/a2a/receipt/v1"]["leftWork"];
    assert_eq!(left["quiet"], true, "{stopped:#}");
    assert_eq!(left["items"][0]["state"], "stopped", "{stopped:#}");
    assert_eq!(left["items"][0]["verified"], "process_group_empty");
    let gone = receipt("previewCancel");
    assert_eq!(gone["outcome"], "already_ended", "{gone:#}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}
