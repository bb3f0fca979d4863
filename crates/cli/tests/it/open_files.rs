//! A low limit of open files: no task that the server accepts fails for lack of descriptors.

use std::fs;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::wait::eventually;
use crate::support::{Place, Signal, processes};

/// Limit of open files of the server.
const LIMIT: usize = 200;

/// Number of parallel commands of each task: more than the descriptors of the server permit at the same time.
const COMMANDS: usize = 30;

/// Number of messages: more than the server accepts at the same time.
const MESSAGES: usize = 10;

/// Open descriptors of a process.
fn open_files(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[test]
fn tasks_with_hooks_and_parallel_commands_fit_into_the_limit_of_open_files() {
    let place = Place::new();
    let ran = place.path("ran");
    let calls = (0..COMMANDS).map(|number| {
        let command = format!("sleep 0.1; echo {number} >> {}", ran.display());
        format!("{{tool: shell, arguments: {{command: \"{command}\"}}}}")
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    let model = place.script(&format!(
        "turns: [{{replies: [{{calls: [{calls}]}}, {{text: Done.}}]}}]\n"
    ));
    let hook = "[[hooks]]\non = \"tool_start\"\ncommand = \"sleep 0.02\"\n";
    let after = hook.replace("tool_start", "tool_end");
    let config = place.file("hooks.toml", format!("{hook}{after}"));
    let flags = format!("--yes --model {model} --config {}", config.display());
    let server = Server::start_by(&place, &flags, |serve| {
        serve.by(&format!("prlimit --nofile={LIMIT}"))
    });
    let mut accepted = Vec::new();
    for number in 0..MESSAGES {
        let body = json!({
            "configuration": {"returnImmediately": true},
            "message": {
                "messageId": format!("m{number}"), "contextId": format!("c{number}"),
                "role": "ROLE_USER", "parts": [{"text": "hello"}],
            },
        });
        let answer = server.request("POST /message:send", &body.to_string());
        let (status, body) = answer.expect("an answer");
        if status == 200 {
            let answer: Value = serde_json::from_str(&body).expect("JSON");
            accepted.push(answer["task"]["id"].as_str().expect("an id").to_owned());
        } else {
            assert_eq!(status, 429, "{body}");
        }
    }
    assert!(accepted.len() > 1, "{accepted:?}");
    let mut most = 0;
    for id in &accepted {
        let task = eventually("the task ends", || {
            most = most.max(open_files(server.running.pid()));
            let task = server.get(&format!("/tasks/{id}"));
            let state = task["status"]["state"].as_str().expect("a state");
            ["COMPLETED", "FAILED"]
                .iter()
                .any(|end| state.ends_with(end))
                .then_some(task)
        });
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
    }
    let ran = fs::read_to_string(ran).expect("the file").lines().count();
    assert_eq!(ran, accepted.len() * COMMANDS, "{} tasks", accepted.len());
    assert!(most < LIMIT, "{most}");
    let ended = server.running.end_by(Signal::TERM);
    assert!(!ended.stderr.contains("open files"), "{}", ended.stderr);
    place.assert_nothing_runs();
}

/// Calls that wait for the end of another command are stopped like the running ones.
#[test]
fn stop_ends_commands_that_wait_for_the_limit_of_open_files() {
    let place = Place::new();
    let calls = (0..COMMANDS).map(|number| {
        let command = format!("echo {number}; {}", place.sleeper());
        format!("{{tool: shell, arguments: {{command: \"{command}\"}}}}")
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    let model = place.script(&format!("turns: [{{replies: [{{calls: [{calls}]}}]}}]\n"));
    let server = Server::start_by(&place, &format!("--yes --model {model}"), |serve| {
        serve.by(&format!("prlimit --nofile={LIMIT}"))
    });
    let body = json!({
        "configuration": {"returnImmediately": true},
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
    });
    let answer = server.request("POST /message:send", &body.to_string());
    let answer: Value = serde_json::from_str(&answer.expect("an answer").1).expect("JSON");
    let id = answer["task"]["id"].as_str().expect("an id");
    eventually("commands run", || {
        let found = processes::of_mark_or_command(place.mark(), place.sleeper());
        (!found.is_empty()).then_some(())
    });
    let stopped = server.request(&format!("POST /tasks/{id}:cancel"), "{}");
    let (status, stopped) = stopped.expect("an answer");
    assert_eq!(status, 200, "{stopped}");
    let stopped: Value = serde_json::from_str(&stopped).expect("JSON");
    let receipt = &stopped["metadata"]["https://allstop.dev/a2a/receipt/v1"]["receipt"];
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    assert_eq!(receipt["cancel_observed"], true, "{receipt:#}");
    server.running.end_by(Signal::TERM);
    place.assert_nothing_runs();
}
