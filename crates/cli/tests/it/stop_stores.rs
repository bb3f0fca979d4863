//! Stops and the store: a damaged store, several stores, and the receipt in the store.

use allstop_core::SessionId;
use allstop_log::session::stream_of;
use allstop_log::{AppendIds, Log as _, RecordBytes, SqliteLog};
use serde_json::Value;

use crate::support::{Ended, FACT_MAX, Place, Running, eventually};

const HANGS: &str = "replies: [{text: Never., stall: first_token}]";
const BACKGROUND: &str = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}]}, {text: Done.}]";

fn json(ended: &Ended) -> Value {
    serde_json::from_str(ended.stdout.trim()).unwrap_or_default()
}

/// Starts a run of this script on a store with this name, and waits until `ps` shows the session.
fn begin(place: &Place, store: &str, script: &str, args: &str) -> Running {
    let run = place.allstop().args("run --yes --json --store");
    let run = run.arg(place.path(store)).arg("--model");
    let run = run.arg(place.script(script)).args(args).arg("hello");
    let running = run.start();
    eventually("its session is open", || {
        let listed = place.allstop().args("ps --json").end().ok().stdout;
        let lines = listed
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let pid = running.pid();
        let mut reports = lines.filter(|report: &Value| report["pid"] == pid);
        let has_work = |report: Value| {
            let work = report["sessions"][0]["work"].as_array();
            work.is_some_and(|work| !work.is_empty())
        };
        reports
            .next()
            .filter(|report| has_work(report.clone()))
            .map(drop)
    });
    running
}

fn on_store(place: &Place, args: &str, store: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.path(store)).end()
}

/// The store is damaged. Regression: `stop --all` opened the store first, failed, and stopped no session.
#[test]
fn stop_of_all_does_not_need_the_store() {
    let place = Place::new();
    let folder = place.path("home").join(".local/share/allstop");
    std::fs::create_dir_all(&folder).expect("a folder");
    let running = begin(&place, "own.db", HANGS, "");
    std::fs::write(folder.join("store.db"), "no database").expect("a file");
    let stopped = place.allstop().args("stop --all --json").end();
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(
        stopped
            .stderr
            .contains("the search for work that was left running failed"),
        "{stopped:?}"
    );
    let envelope = running.end(FACT_MAX).envelope();
    assert_eq!(
        envelope["receipt"],
        json(&stopped)["receipt"],
        "{envelope:#}"
    );
    assert_eq!(envelope["stop_reason"], "cancelled");
}

/// Regression: a stop on one store also stopped the run of another job, which used another store.
#[test]
fn stop_on_a_store_leaves_the_sessions_of_others_alone() {
    let place = Place::new();
    let (one, other) = (
        begin(&place, "one.db", HANGS, ""),
        begin(&place, "other.db", HANGS, ""),
    );
    on_store(&place, "stop --all", "one.db").ok();
    assert_eq!(one.end(FACT_MAX).code, 130);
    let last = json(&on_store(&place, "stop last --json", "one.db").ok());
    assert_eq!(last["receipt"]["outcome"], "already_ended", "{last:#}");
    let listed = place.allstop().args("ps").end().ok().stdout;
    assert!(listed.contains("runs"), "the other one goes on: {listed}");
    let listed = on_store(&place, "ps", "one.db").ok().stdout;
    assert!(!listed.contains("runs"), "the other store: {listed}");
    on_store(&place, "stop last", "other.db").ok();
    assert_eq!(other.end(FACT_MAX).code, 130);
}

/// A session of a newer program version cannot be read. Regression: `ps` and `stop` reported that no session is
/// running.
#[tokio::test]
async fn session_of_a_newer_version_is_named() {
    let place = Place::new();
    let run = place.run_script("replies: [{text: Hello.}]");
    let id = run.args("--json hello").end().ok().session();
    let log = SqliteLog::open(place.store()).await.expect("the store");
    let stream = stream_of(&SessionId::new(id));
    let streams = log.list(stream.as_str()).await.expect("the streams");
    let (_, version) = streams.first().expect("the session");
    let newer = RecordBytes::from_static(br#"{"v":9,"type":"turn_started"}"#);
    let append = AppendIds::new().next_id();
    let appended = log.append(&stream, *version, append, vec![newer]).await;
    appended.expect("a free log");
    drop(log);
    for command in ["ps", "stop --all"] {
        let ended = on_store(&place, command, "store.db");
        assert_eq!(ended.code, 1, "{command}: {ended:?}");
        let said = [&*ended.stdout, &ended.stderr].concat();
        assert!(said.contains("cannot be read"), "{command}: {ended:?}");
    }
}

/// Regression: the receipt in the envelope of the run differed from the receipt of the stop: it had another id, and its
/// cause was the end of the run.
#[test]
fn stop_during_the_wait_for_background_work_is_that_of_the_run() {
    let place = Place::new();
    let running = begin(&place, "store.db", BACKGROUND, "--wait-background");
    eventually("the run waits", || {
        let listed = place.allstop().args("ps").end().ok().stdout;
        listed.contains("idle").then_some(())
    });
    // The turn has already ended. So a stop of the turn leaves the background work running.
    let none = json(&on_store(&place, "stop last --extent turn --json", "store.db").ok());
    assert_eq!(none["receipt"]["outcome"], "already_ended", "{none:#}");
    let stopped = json(&on_store(&place, "stop last --json", "store.db").ok());
    let envelope = running.end(FACT_MAX).envelope();
    assert_eq!(envelope["receipt"], stopped["receipt"], "{envelope:#}");
    assert_eq!(envelope["receipt"]["cause"]["kind"], "user");
    assert_eq!(envelope["output"], "Done.");
    let stored = json(&on_store(&place, "receipt last --json", "store.db").ok());
    assert_eq!(stored, stopped["receipt"]);
    place.assert_nothing_runs();
}

/// Regression: after a stop of kept background work, the log had no receipt.
#[test]
fn stop_of_kept_work_has_its_receipt_in_the_log() {
    let place = Place::new();
    let run = place.run_script(BACKGROUND);
    let kept = run.args("--json --keep-background hello").end().ok();
    let envelope = kept.envelope();
    assert_eq!(envelope["receipts"].as_array().map(Vec::len), Some(0));
    let id = kept.session();
    let stopped = json(&on_store(&place, &format!("stop {id} --json"), "store.db").ok());
    assert_eq!(
        stopped["receipt"]["items"][0]["state"], "stopped",
        "{stopped:#}"
    );
    let stored = json(&on_store(&place, &format!("receipt {id} --json"), "store.db").ok());
    assert_eq!(stored, stopped["receipt"]);
    place.assert_nothing_runs();
}
