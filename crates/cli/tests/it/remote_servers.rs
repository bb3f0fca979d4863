//! Sessions of servers (`serve` and `copilot`), which a terminal lists and stops.

use serde_json::{Value, json};

use crate::copilot_clients::raw_client::RawClient;
use crate::remote::request;
use crate::serve::Server;
use crate::support::terminal::Terminal;
use crate::support::{Ended, FACT_MAX, Place, Running, Signal, eventually};

/// Script with a turn whose command ignores SIGTERM.
const SCRIPT: &str = r#"
turns:
  - when: dig
    replies:
      - calls: [{tool: shell, arguments: {command: "trap '' TERM; setsid sleep 600 & echo x > begun; sleep 600 & wait"}}]
      - text: Done.
replies: [{text: Hello there.}, {text: Hello again.}]
"#;

fn allstop(place: &Place, args: &str) -> Ended {
    place.allstop().args(args).end()
}

fn dig_has_begun(place: &Place) {
    let begun = place.work().join("begun");
    eventually("the deaf command", || begun.exists().then_some(()));
}

/// Sends a text to the context `c1`, or to the given task. Returns the task without waiting for its end.
fn send(server: &Server, id: &str, text: &str, task: Option<&str>) -> Value {
    let message = json!({
        "messageId": id, "role": "ROLE_USER", "contextId": "c1", "taskId": task.unwrap_or_default(),
        "parts": [{"text": text}],
    });
    let body = json!({"configuration": {"returnImmediately": true}, "message": message});
    let sent = server.request("POST /message:send", &body.to_string());
    let (status, body) = sent.expect("an answer");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["task"].clone()
}

fn wait_for_state(server: &Server, task: &Value, state: &str) {
    let id = task["id"].as_str().expect("an id");
    eventually(state, || {
        let task = server.get(&format!("/tasks/{id}"));
        (task["status"]["state"] == state).then_some(())
    });
}

#[test]
fn served_task_is_watched_and_stopped_from_a_terminal() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    let server = Server::start_with(&place, &format!("--yes --grace 300ms --model {model}"));
    let listed = allstop(&place, "ps").ok().stdout;
    assert!(listed.contains("no session is open"), "{listed}");
    let task = send(&server, "m1", "dig", None);
    dig_has_begun(&place);
    let listed = allstop(&place, "ps").ok().stdout;
    for part in ["context-c1", "runs", "serve in process", "trap '' TERM"] {
        assert!(listed.contains(part), "{listed}");
    }
    // A run cannot continue the session of a server. Its hint does not suggest the stop that the server refuses.
    let refused = place.allstop().args("run --model");
    let refused = refused.arg(&model).arg("--store").arg(place.store());
    let refused = refused.args("--session context-c1 hello").end();
    assert_eq!(refused.code, 1, "{refused:?}");
    let hint = refused.stderr.split_once("hint: ").expect("a hint").1;
    assert!(hint.contains("send the message to the server"), "{hint}");
    assert!(hint.contains("`allstop stop context-c1`"), "{hint}");
    let watcher = place.allstop().args("watch last --json").start();
    watcher.wait_stdout("tool_started");
    let closing = allstop(&place, "stop last --extent session");
    assert_eq!(closing.code, 1, "{}", closing.stderr);
    assert!(
        closing.stderr.contains("its client closes"),
        "{}",
        closing.stderr
    );
    let stopped = allstop(&place, "stop last --json").ok();
    let stopped: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
    watcher.wait_stdout("the turn is being stopped by allstop stop in process");
    watcher.wait_stdout(r#""event":"receipt""#);
    wait_for_state(&server, &task, "TASK_STATE_CANCELED");
    let (_, metrics) = server.request("GET /metrics", "").expect("an answer");
    let counted = "allstop_stops_total{cause=\"user\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
    // The conversation can continue after the stop.
    let task = send(&server, "m2", "hello", None);
    wait_for_state(&server, &task, "TASK_STATE_COMPLETED");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    let told = watcher.end(FACT_MAX).ok();
    assert!(told.stdout.contains("session_ended"), "{}", told.stdout);
    place.assert_nothing_runs();
}

/// Regression: `ps` listed the server as starting for ever, and `stop --all` failed.
#[test]
fn server_without_sessions_is_ready() {
    let place = Place::new();
    let server = Server::start_with(&place, "--agent echo");
    let listed = allstop(&place, "ps").ok().stdout;
    let ready = format!("ready  serve in process {}", server.running.pid());
    assert!(listed.contains(&ready), "{listed}");
    assert!(listed.contains("no session is open"), "{listed}");
    let json: Value =
        serde_json::from_str(&allstop(&place, "ps --json").ok().stdout).expect("JSON");
    let json = &json["processes"][0];
    assert_eq!(
        (&json["is_server"], &json["is_starting"]),
        (&json!(true), &json!(false))
    );
    let stopped = allstop(&place, "stop --all").ok().stdout;
    assert!(stopped.contains("nothing to stop"), "{stopped}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// The task waits for the answer in the state `input required`. Only its client can answer, and not a terminal.
#[test]
fn question_of_a_task_stays_with_its_client() {
    let place = Place::new();
    let model = place.script(SCRIPT);
    let server = Server::start_with(&place, &format!("--grace 300ms --model {model}"));
    let task = send(&server, "m1", "dig", None);
    wait_for_state(&server, &task, "TASK_STATE_INPUT_REQUIRED");
    assert!(allstop(&place, "ps").ok().stdout.contains("asks"));
    let terminal = Terminal::new();
    let watcher = place.allstop().args("watch last").env("TERM", "xterm");
    let mut watcher = watcher.on_screen(terminal.line()).start();
    terminal.wait("waiting for an answer from another terminal");
    let answer = json!({
        "session_id": "context-c1", "question_id": "q_1", "answer": "allow_once", "by": "a test",
    });
    let answered = request(&place, "allstop.answer", &answer);
    assert!(
        answered.contains("only the client of the task"),
        "{answered}"
    );
    wait_for_state(&server, &task, "TASK_STATE_INPUT_REQUIRED");
    assert!(!place.work().join("begun").exists(), "the command ran");
    let id = task["id"].as_str();
    send(&server, "m2", "yes", id);
    dig_has_begun(&place);
    watcher.signal(Signal::INT);
    watcher.end(FACT_MAX).ok();
    allstop(&place, "stop --all --now").ok();
    wait_for_state(&server, &task, "TASK_STATE_CANCELED");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}

/// A server of Copilot sessions, and a client that is connected to it.
fn copilot(place: &Place) -> (Running, RawClient) {
    // The SDKs use the name `bash` for the tool `shell`.
    let model = place.script(&SCRIPT.replace("tool: shell", "tool: bash"));
    let server = place.allstop().args("copilot --yes --grace 300ms --port 0");
    let server = server.arg("--store").arg(place.store());
    let server = server.arg("--model").arg(model);
    let server = server.env("COPILOT_CONNECTION_TOKEN", "secret").start();
    let port = server.line_of_stdout("listening on port ");
    let mut client = RawClient::connect(port.parse().expect("a port"));
    client.request("connect", &json!({"token": "secret"}));
    (server, client)
}

#[test]
fn ambiguous_id_stops_no_session() {
    let place = Place::new();
    let (server, mut client) = copilot(&place);
    for id in ["alpha1", "alpha2"] {
        client.request("session.create", &json!({"sessionId": id}));
        let message = json!({"sessionId": id, "prompt": "dig"});
        client.request("session.send", &message);
    }
    let busy = || {
        let report = allstop(&place, "ps --json").ok().stdout;
        let report: Value = serde_json::from_str(&report).expect("one process");
        let sessions = report["sessions"].as_array().expect("sessions");
        let busy = sessions.iter().filter(|session| session["is_busy"] == true);
        busy.count()
    };
    eventually("two turns", || (busy() == 2).then_some(()));
    let stopped = allstop(&place, "stop alpha");
    assert_eq!(stopped.code, 2, "{stopped:?}");
    let named = "`alpha` matches 2 sessions: alpha1, alpha2";
    assert!(stopped.stderr.contains(named), "{}", stopped.stderr);
    assert_eq!(busy(), 2);
    assert_eq!(server.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}

#[test]
fn session_of_a_copilot_client_is_stopped_from_a_terminal() {
    let place = Place::new();
    let (server, mut client) = copilot(&place);
    client.request("session.create", &json!({"sessionId": "one"}));
    client.request(
        "session.send",
        &json!({"sessionId": "one", "prompt": "dig"}),
    );
    dig_has_begun(&place);
    let listed = allstop(&place, "ps").ok().stdout;
    assert!(listed.contains("copilot in process"), "{listed}");
    let stopped = allstop(&place, "stop one --json").ok();
    let stopped: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped}");
    let message = json!({"sessionId": "one", "prompt": "hello"});
    let answer = client.request("session.sendAndWait", &message);
    let content = &answer["result"]["response"]["data"]["content"];
    assert_eq!(content, "Hello there.", "{answer}");
    client.request("session.destroy", &json!({"sessionId": "one"}));
    let listed = allstop(&place, "ps").ok().stdout;
    assert!(listed.contains("ready  copilot in process"), "{listed}");
    assert!(listed.contains("no session is open"), "{listed}");
    assert_eq!(server.end_by(Signal::TERM).code, 143);
    place.assert_nothing_runs();
}
