//! One system call on the files of the store fails: the n-th of its kind, in a turn, in a second turn, or in a stop. Each
//! commit tests a random sample. `ALLSTOP_TEST_FAULTS=1` tests every call.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::fault::Fault;
use crate::support::random::{self, Random, number_from_environment};
use crate::support::wait::within;
use crate::support::{Ended, FACT_MAX, Place, Signal};

/// The calls, and the errors with which they fail.
const CALLS: [(&str, &str); 10] = [
    ("read", "EIO"),
    ("write", "EIO"),
    ("write", "ENOSPC"),
    ("sync", "EIO"),
    ("open", "EACCES"),
    ("truncate", "EIO"),
    ("rename", "EIO"),
    ("unlink", "EACCES"),
    ("mkdir", "ENOSPC"),
    ("rmdir", "EACCES"),
];

/// A run makes fewer calls of each kind on the files of the store.
const NUMBER_MAX: u64 = 400;

/// Numbers of a random sample. Most calls of a run are below this number.
const SAMPLE_MAX: u64 = 30;

const PAYMENT: &str = "echo paid >> ledger";

const SCRIPT: &str = "turns: [{when: pay, replies: [{calls: [{tool: shell, arguments: {command: 'echo paid >> ledger'}}]}, \
                      {text: Paid.}]}, {when: hang, replies: [{calls: [{tool: shell, arguments: {command: \
                      'echo paid >> ledger; touch hangs; sleep 600'}}]}]}]";

#[test]
fn first_turn() {
    sweep(0);
}

#[test]
fn second_turn() {
    sweep(1);
}

#[test]
fn stop() {
    sweep(2);
}

#[expect(clippy::print_stdout, reason = "figures for who reads the output")]
fn sweep(faulty: usize) {
    let is_whole = number_from_environment("ALLSTOP_TEST_FAULTS").is_some();
    let seed = random::seed();
    println!("ALLSTOP_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    let mut cases = 0;
    for (call, error) in CALLS {
        let (first, last) = if is_whole {
            (0, NUMBER_MAX)
        } else {
            let number = random.below(SAMPLE_MAX);
            (number, number)
        };
        for number in first..=last {
            let rule = format!("{call} store.db {error} skip={number} times=1");
            cases += 1;
            if !life(faulty, &rule) {
                break;
            }
        }
    }
    println!("{cases} faults");
}

/// Runs two turns and a stop, one of them with a fault. Returns false if the fault hit nothing.
fn life(faulty: usize, rule: &str) -> bool {
    let place = Place::new();
    let fault = Fault::new(&place, rule);
    let mut acknowledged = Vec::new();
    for (step, prompt) in ["pay first", "pay again", "hang"].into_iter().enumerate() {
        let mut run = place.run_script(SCRIPT).arg("--json");
        // The first turn may have failed before its session existed.
        if step > 0 && !ids(&place).is_empty() {
            run = run.arg("--continue");
        }
        if step == faulty {
            run = fault.below(run);
        }
        let mut running = run.arg(prompt).start();
        if prompt == "hang" {
            let hangs = place.work().join("hangs");
            within(FACT_MAX, || {
                let is_over = hangs.exists() || running.ends_within(Duration::ZERO);
                is_over.then_some(())
            });
            running.signal(Signal::INT);
        }
        let ended = running.end(FACT_MAX);
        check_end(rule, step, &ended);
        if step != faulty && prompt != "hang" {
            assert_eq!(ended.code, 0, "{rule}: {ended:#?}");
        }
        if ended.code == 0 {
            acknowledged.push(prompt);
        }
    }
    place.assert_nothing_runs();
    let checked = place
        .allstop()
        .args("store check --store")
        .arg(place.store());
    let checked = checked.end();
    assert_eq!(checked.code, 0, "{rule}: {checked:#?}");
    let sessions = sessions(&place);
    let turns = || sessions.iter().flat_map(|session| rows(&session["turns"]));
    let completed = || turns().filter(|turn| turn["stop_reason"] == "completed");
    for prompt in acknowledged {
        let is_there = completed().any(|turn| turn["input"] == prompt);
        assert!(is_there, "{rule}: {prompt} is lost: {sessions:#?}");
    }
    let lost = sessions.iter().flat_map(|session| rows(&session["lost"]));
    let lost = lost.flat_map(|turn| rows(&turn["effects"]["calls"]));
    let is_payment = |call: &&Value| {
        call["label"]
            .as_str()
            .is_some_and(|label| label.contains(PAYMENT))
    };
    let known = completed().count() + lost.filter(is_payment).count();
    let ledger = fs::read_to_string(place.work().join("ledger")).unwrap_or_default();
    let paid = ledger.lines().count();
    assert!(known >= paid, "{rule}: {paid} payments: {sessions:#?}");
    !fault.seen().is_empty()
}

#[track_caller]
fn check_end(rule: &str, step: usize, ended: &Ended) {
    assert!(
        [0, 1, 130].contains(&ended.code),
        "{rule}: {step}: {ended:#?}"
    );
    assert!(
        !ended.stderr.contains("panicked"),
        "{rule}: {step}: {ended:#?}"
    );
}

fn sessions(place: &Place) -> Vec<Value> {
    let show = |id: &String| place.sessions().args("show --json").arg(id).end();
    ids(place)
        .iter()
        .map(show)
        .map(|shown| json(&shown))
        .collect()
}

fn ids(place: &Place) -> Vec<String> {
    let listed = place.sessions().args("list --json").end();
    // A run that fails early may leave no store.
    if listed.code != 0 {
        assert!(!place.store().exists(), "{listed:#?}");
        return Vec::new();
    }
    let id = |row: &Value| Some(row["session_id"].as_str()?.to_owned());
    rows(&json(&listed)["sessions"]).filter_map(id).collect()
}

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{ended:#?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
