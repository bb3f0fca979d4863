//! `allstop store`, and the other commands on a store with one damaged session.

use std::fs;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::{Ended, Place, Signal};

const SCRIPT: &str = "replies: [{text: The answer.}, {text: Again.}]";

fn on_store(place: &Place, args: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.store()).end()
}

/// Runs a prompt in a new session. Returns the id of the session.
fn run(place: &Place, prompt: &str) -> String {
    place.run_script(SCRIPT).arg(prompt).end().ok();
    // The list begins with the newest session.
    place.only_session()
}

/// Changes bits of a record that contains this word, in the file of the store.
fn damage(place: &Place, word: &str) {
    // After a compaction, all records are in this file.
    on_store(place, "store compact").ok();
    let mut bytes = fs::read(place.store()).expect("the store");
    let mut places = bytes.windows(word.len());
    let at = places
        .position(|part| part == word.as_bytes())
        .expect("the word");
    bytes[at] ^= 1;
    fs::write(place.store(), bytes).expect("the store");
}

#[test]
fn damaged_session_fails_alone_and_is_repaired() {
    let place = Place::new();
    let first = run(&place, "hello");
    let broken = run(&place, "a secret word");
    let last = run(&place, "goodbye");
    assert!(
        on_store(&place, "store check")
            .ok()
            .stdout
            .contains("no problem found")
    );
    damage(&place, "secret");

    let listed = on_store(&place, "sessions list").ok().stdout;
    for part in ["hello", "goodbye", "damaged"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    on_store(&place, &format!("sessions show {first}")).ok();
    on_store(&place, &format!("sessions show {last}")).ok();
    // The work of the damaged session is unknown, and `ps` names only this session.
    let listed = on_store(&place, "ps").stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert!(
        listed.contains("may still run") && listed.contains(&broken),
        "{listed}"
    );
    let continued = place
        .run_script(SCRIPT)
        .args("--session")
        .arg(&first)
        .arg("more")
        .end();
    continued.ok();
    let shown = on_store(&place, &format!("sessions show {broken}"));
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.stderr.contains(&broken), "{}", shown.stderr);
    assert!(
        shown.stderr.contains("allstop store repair"),
        "{}",
        shown.stderr
    );

    let doctor = place.allstop().args("doctor --store").arg(place.store());
    let doctor = doctor.end();
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let found = format!("is damaged: session/{broken}: ");
    assert!(
        doctor.stdout.contains(&found) && doctor.stdout.contains("store repair"),
        "{doctor:?}"
    );

    let copy = place.path("copy.db");
    let copied = on_store(&place, &format!("store backup {}", copy.display()));
    assert_eq!(copied.code, 1, "{copied:?}");
    assert!(copied.stdout.contains(&broken), "{copied:?}");

    let checked = on_store(&place, "store check --json");
    assert_eq!(checked.code, 1);
    let report: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let problem = report["problems"][0].as_str().expect("a problem");
    assert!(
        problem.starts_with(&format!("session/{broken}: ")),
        "{problem}"
    );

    let repaired = on_store(&place, "store repair").ok().stdout;
    assert!(
        repaired.contains(&format!("session {broken}: the first")),
        "{repaired}"
    );
    on_store(&place, "store check").ok();
    // The turn that lost its end is rolled back, like after a crash.
    place
        .run_script(SCRIPT)
        .args("--session")
        .arg(&broken)
        .arg("again")
        .end()
        .ok();
    place.assert_nothing_runs();
}

/// Regression: the server took the cut task for interrupted, and executed its command again.
#[test]
fn task_that_was_cut_by_a_repair_is_not_executed_again() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'echo x >> effects'}}]}, {text: The answer.}]";
    let model = place.script(script);
    let flags = format!("--model {model} --yes");
    let server = Server::start_with(&place, &flags);
    let message = json!({"messageId": "m1", "contextId": "c1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let body = json!({ "message": message }).to_string();
    let (status, answer) = server
        .request("POST /message:send", &body)
        .expect("an answer");
    assert!(status == 200 && answer.contains("COMPLETED"), "{answer}");
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    damage(&place, "execution_started");
    let repaired = on_store(&place, "store repair").ok().stdout;
    assert!(repaired.contains("the first 1 of"), "{repaired}");
    let server = Server::start_with(&place, &flags);
    let tasks = server.tasks();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(
        tasks[0]["status"]["state"], "TASK_STATE_FAILED",
        "{tasks:?}"
    );
    assert_eq!(server.running.end_by(Signal::TERM).code, 143);
    let effects = fs::read_to_string(place.work().join("effects")).expect("the effects");
    assert_eq!(effects, "x\n");
}

#[test]
fn damaged_session_is_removed() {
    let place = Place::new();
    run(&place, "hello");
    let broken = run(&place, "a secret word");
    damage(&place, "secret");
    on_store(&place, &format!("sessions rm {broken}")).ok();
    let listed = on_store(&place, "sessions list").ok().stdout;
    assert!(listed.contains("hello"), "{listed}");
    assert!(!listed.contains(&broken), "{listed}");
    on_store(&place, "store check").ok();
}

#[test]
fn back_up_and_export_have_every_session() {
    let place = Place::new();
    run(&place, "the first");
    let second = run(&place, "the second");
    let copy = place.path("copy.db");
    on_store(&place, &format!("store backup {}", copy.display())).ok();
    let text = place.path("export.jsonl");
    on_store(&place, &format!("store export {}", text.display())).ok();
    let other = place.path("other.db");
    fs::copy(&copy, &other).expect("a copy");
    place
        .allstop()
        .args(&format!("sessions rm {second} --store"))
        .arg(&other)
        .end()
        .ok();
    let imported = place
        .allstop()
        .args("store import")
        .arg(&text)
        .arg("--store")
        .arg(&other);
    let imported = imported.end().ok().stdout;
    assert!(
        imported.contains("imported 1 session or task") && imported.contains("1 already there"),
        "{imported}"
    );
    for store in [&copy, &other] {
        let listed = place
            .allstop()
            .args("sessions list --store")
            .arg(store)
            .end()
            .ok()
            .stdout;
        assert!(
            listed.contains("the first") && listed.contains("the second"),
            "{listed}"
        );
    }
    let again = on_store(&place, &format!("store backup {}", copy.display()));
    assert_eq!(again.code, 1, "a file that exists stays: {again:?}");
    // A file with this name is not the output.
    fs::write(place.work().join("-"), "").expect("the folder is there");
    let piped = on_store(&place, "store export -").ok().stdout;
    assert_eq!(piped, fs::read_to_string(text).expect("the export"));
}

#[test]
fn compaction_reports_the_sizes() {
    let place = Place::new();
    run(&place, "hello");
    let compacted = on_store(&place, "store compact").ok().stdout;
    assert!(
        compacted.contains("before") && compacted.contains("now"),
        "{compacted}"
    );
    let missing = place
        .allstop()
        .args("store check --store")
        .arg(place.path("none.db"))
        .end();
    assert_eq!(missing.code, 1);
    assert!(
        missing.stderr.contains("does not exist"),
        "{}",
        missing.stderr
    );
}
