//! `allstop serve --keep-tasks`: ended tasks leave the store, with their conversations.

use serde_json::{Value, json};

use crate::serve::{Server, send};
use crate::support::wait::eventually;
use crate::support::{Place, Signal};

/// Number of tasks in the test with `kill -9`: enough that the removal takes several transactions.
const TASKS: usize = 300;

/// Number of kills during a removal.
const KILLS: usize = 3;

fn total(server: &Server) -> u64 {
    let page = server.get("/tasks?pageSize=1");
    page["totalSize"].as_u64().expect("a number")
}

fn removed(server: &Server) -> String {
    let (status, body) = server.request("GET /metrics", "").expect("an answer");
    assert_eq!(status, 200, "{body}");
    let line = body
        .lines()
        .find(|line| line.starts_with("allstop_tasks_removed_total"));
    line.expect("the metric exists").to_owned()
}

#[test]
fn ended_task_is_removed_after_its_time() {
    let place = Place::new();
    let server = Server::start_by(&place, "--agent echo --keep-tasks 1s", |serve| {
        serve.env("ALLSTOP_LOG", "info")
    });
    let sent = send(&server.address, "hello").expect("an answer");
    let id = sent["task"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(total(&server), 1);
    eventually("the task is removed", || {
        (total(&server) == 0).then_some(())
    });
    let (status, _) = server
        .request(&format!("GET /tasks/{id}"), "")
        .expect("an answer");
    assert_eq!(status, 404);
    eventually("the removal is counted", || {
        (removed(&server) == "allstop_tasks_removed_total 1").then_some(())
    });
    // A message with the same id starts a new task.
    let again = send(&server.address, "hello").expect("an answer");
    assert_ne!(again["task"]["id"], *id);
    let ended = server.running.end_by(Signal::TERM);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    for line in [
        "tasks are removed, with their conversations: ",
        "ended tasks were removed removed=1",
    ] {
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
}

#[test]
fn without_the_flags_every_task_stays() {
    let place = Place::new();
    let server = Server::start_with(&place, "--agent echo");
    send(&server.address, "hello").expect("an answer");
    assert_eq!(removed(&server), "allstop_tasks_removed_total 0");
    assert_eq!(total(&server), 1);
    server.running.end_by(Signal::TERM);
    // The tasks that ended last stay, and every task stays for a minute.
    let server = Server::start_with(&place, "--agent echo --keep-tasks-max 0");
    send(&server.address, "again").expect("an answer");
    assert_eq!(total(&server), 2);
}

#[test]
fn conversation_is_removed_with_the_last_task_of_its_context() {
    let place = Place::new();
    let script = place.script("replies: [{text: First.}, {text: Second.}]\n");
    let flags = format!("--keep-tasks 1s --model {script}");
    let server = Server::start_with(&place, &flags);
    let sessions = || {
        let list = place
            .allstop()
            .args("sessions list --json --store")
            .arg(place.store());
        let list = list.end();
        assert_eq!(list.code, 0, "{}", list.stderr);
        list.stdout
    };
    let message = json!({
        "messageId": "m1", "role": "ROLE_USER", "contextId": "c1", "parts": [{"text": "my secret"}],
    });
    let body = json!({"message": message}).to_string();
    let (status, body) = server
        .request("POST /message:send", &body)
        .expect("an answer");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(sessions().contains("context-c1"));
    eventually("the task is removed", || {
        (total(&server) == 0).then_some(())
    });
    assert!(!sessions().contains("context-c1"), "{}", sessions());
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
}

/// A killed server leaves each task whole or removes it whole, and the next server removes the rest.
#[test]
fn killed_removal_leaves_whole_tasks() {
    let place = Place::new();
    let server = Server::start_with(&place, "--agent echo");
    for number in 0..TASKS {
        send(&server.address, &format!("m{number}")).expect("an answer");
    }
    server.running.end_by(Signal::KILL);
    let mut left = TASKS;
    for _ in 0..KILLS {
        let server = Server::start_with(&place, "--agent echo --keep-tasks 1s");
        eventually("the removal begins", || {
            (total(&server) < left as u64).then_some(())
        });
        server.running.end_by(Signal::KILL);
        let server = Server::start_with(&place, "--agent echo");
        let tasks = server.tasks();
        for task in &tasks {
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
            let id = task["id"].as_str().expect("an id");
            let whole = server.get(&format!("/tasks/{id}"));
            assert_eq!(whole["artifacts"][0]["name"], task["artifacts"][0]["name"]);
            assert_eq!(whole["history"].as_array().map(Vec::len), Some(1));
        }
        // The removal that was seen may not have reached the store.
        assert!(tasks.len() <= left);
        left = tasks.len();
        server.running.end_by(Signal::KILL);
        if left == 0 {
            return;
        }
    }
    let server = Server::start_with(&place, "--agent echo --keep-tasks 1s");
    eventually("every task is removed", || {
        (total(&server) == 0).then_some(())
    });
}
