//! Stops and the store: a damaged store, several stores, and the receipt in the store.

use allstop_core::SessionId;
use allstop_log::session::stream_of;
use allstop_log::{AppendIds, Log as _, RecordBytes, SqliteLog};
use serde_json::Value;

use crate::support::fault::Fault;
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
        let report: Value = serde_json::from_str(&listed).expect("one object");
        let pid = running.pid();
        let mut sessions = report["sessions"].as_array().expect("a list").iter();
        let session = sessions.find(|session| session["pid"] == pid)?;
        let work = session["work"].as_array().expect("a list");
        (!work.is_empty()).then_some(())
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
        json(&stopped)["stops"][0]["receipt"],
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

/// A run that waits in an output guardrail, the last step before its commit, until the file `go` exists.
fn before_its_commit(place: &Place, fault: &Fault) -> Running {
    let (ready, go) = (place.path("ready"), place.path("go"));
    let config = format!(
        "[[guardrails]]\non = \"output\"\ncommand = \"touch {}; until test -e {}; do sleep 0.01; done\"\n",
        ready.display(),
        go.display()
    );
    let config = place.file("allstop.toml", config);
    let run = place.run_script("replies: [{text: Hello.}]").arg("--json");
    let running = fault
        .below(run.arg("--config").arg(config).arg("hello"))
        .start();
    eventually("the guardrail runs", || ready.exists().then_some(()));
    running
}

/// The stop comes while the commit is being synced, so it finds a turn that completes. Regression: the answer had no
/// `stop_reason`.
#[test]
fn stop_during_a_slow_commit_has_the_reason_of_the_turn() {
    let place = Place::new();
    let fault = Fault::new(&place, "");
    let running = before_its_commit(&place, &fault);
    fault.set("sync store.db 700ms");
    std::fs::write(place.path("go"), "").expect("a file");
    eventually("the commit is being synced", || {
        (!fault.seen().is_empty()).then_some(())
    });
    let stopped = json(&on_store(&place, "stop last --json", "store.db").ok());
    assert_eq!(
        stopped["receipt"]["outcome"], "already_ended",
        "{stopped:#}"
    );
    assert_eq!(stopped["stop_reason"], "completed", "{stopped:#}");
    let envelope = running.end(FACT_MAX).envelope();
    assert_eq!(envelope["stop_reason"], "completed", "{envelope:#}");
}

/// Stops a run on the store `own.db`, which takes no more bytes, without naming the store. Returns the end of the stop and
/// the id of the session.
fn stop_on_a_hanging_store(place: &Place, args: &str) -> (Ended, String) {
    let ready = place.path("ready");
    let rule = format!("write own.db- hang when={}", ready.display());
    let fault = Fault::new(place, &rule);
    let script = format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: 'touch {}; sleep 600'}}}}]}}]",
        ready.display()
    );
    let run = place
        .allstop()
        .args("run --yes --json --on-stop keep --store");
    let run = run.arg(place.path("own.db")).args(args).arg("--model");
    let run = run.arg(place.script(&script)).arg("hello");
    let running = fault.below(run).start();
    eventually("the call runs", || ready.exists().then_some(()));
    let stopped = place.allstop().args("stop last").end();
    let envelope = running.end(FACT_MAX).envelope();
    assert_eq!(envelope["stop_reason"], "cancelled", "{envelope:#}");
    let id = envelope["session_id"].as_str().expect("an id").to_owned();
    (stopped, id)
}

/// Regression: no command was named that shows the end of the turn later.
#[test]
fn unconfirmed_stop_names_the_store_of_the_run() {
    let place = Place::new();
    let (stopped, id) = stop_on_a_hanging_store(&place, "--grace 2s");
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    let store = place.path("own.db");
    let said = format!(
        "the store has not confirmed the end of the turn: `allstop sessions show {id} --store {}`",
        store.display()
    );
    assert!(stopped.stderr.contains(&said), "{stopped:#?}");
}

/// The process ends before it answers the stop. Regression: the stop looked for the session in the default store, and
/// did not print the hint.
#[test]
fn stop_without_an_answer_reads_the_store_of_the_run() {
    let place = Place::new();
    let (stopped, id) = stop_on_a_hanging_store(&place, "--grace 100ms");
    assert_eq!(stopped.code, 1, "{stopped:#?}");
    let said = format!(
        "the process of session `{id}` accepted the stop and has closed the session, but the store has no receipt of this stop"
    );
    assert!(stopped.stderr.contains(&said), "{stopped:#?}");
    let receipt = format!(
        "allstop receipt {id} --store {}",
        place.path("own.db").display()
    );
    assert!(stopped.stderr.contains(&receipt), "{stopped:#?}");
    let printed = on_store(&place, &format!("receipt {id}"), "own.db").ok();
    assert!(
        printed.stdout.contains("outcome unknown"),
        "the hint is true: {printed:#?}"
    );
}

/// Regression: `stop` and `ps` reported that no session is open.
#[test]
fn stop_of_a_run_that_is_starting_names_its_process() {
    let place = Place::new();
    let fault = Fault::new(&place, "open store.db hang");
    let run = place.run_script(HANGS).args("--json hello");
    let running = fault.below(run).start();
    eventually("the start hangs", || {
        (!fault.seen().is_empty()).then_some(())
    });
    let pid = running.pid();
    let starting = format!("`run` is starting in process {pid}: its session is not open yet");
    for stop in ["stop last", "stop --all"] {
        let stopped = place.allstop().args(stop).arg("--store");
        let stopped = stopped.arg(place.store()).end();
        assert_eq!(stopped.code, 1, "{stop}: {stopped:#?}");
        assert!(stopped.stderr.contains(&starting), "{stop}: {stopped:#?}");
        let remedy = format!("kill {pid}");
        assert!(stopped.stderr.contains(&remedy), "{stop}: {stopped:#?}");
    }
    let listed = place.allstop().args("ps").end().ok().stdout;
    assert!(
        listed.contains(&format!("starts  run in process {pid}")),
        "{listed}"
    );
    fault.set("");
    eventually("its session is open", || {
        let listed = place.allstop().args("ps").end().ok().stdout;
        listed.contains("runs  run in process").then_some(())
    });
    on_store(&place, "stop last", "store.db").ok();
    assert_eq!(running.end(FACT_MAX).code, 130);
}

/// The session opens while the stop waits for it.
#[test]
fn stop_waits_a_short_time_for_a_session_that_is_being_opened() {
    let place = Place::new();
    let fault = Fault::new(&place, "open store.db hang");
    let run = place.run_script(HANGS).args("--json hello");
    let running = fault.below(run).start();
    eventually("the start hangs", || {
        (!fault.seen().is_empty()).then_some(())
    });
    let stop = place.allstop().args("stop last --store");
    let stopping = stop.arg(place.store()).start();
    fault.set("");
    let mut stopped = stopping.end(FACT_MAX);
    // The stop waits for two seconds. A busy machine may need more.
    while stopped.stderr.contains("is starting in process") {
        stopped = on_store(&place, "stop last", "store.db");
    }
    assert_eq!(stopped.code, 0, "{stopped:#?}");
    assert!(stopped.stdout.contains("stopped by"), "{stopped:#?}");
    assert_eq!(running.end(FACT_MAX).code, 130);
}
