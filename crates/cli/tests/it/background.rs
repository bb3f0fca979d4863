//! Work that outlives its turn, and several commands on one store.

use serde_json::Value;

use crate::support::fault::Fault;
use crate::support::processes::is_alive;
use crate::support::{Place, Signal, eventually};

/// Script of a turn that starts a shell command in the background.
fn leaves(command: &str) -> String {
    format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: {command:?}, background: true}}}}]}}, {{text: Started.}}, {{text: Again.}}]"
    )
}

#[track_caller]
fn shown(place: &Place, session: &str) -> Value {
    let shown = place.sessions().args("show --json").arg(session).end().ok();
    serde_json::from_str(&shown.stdout).expect("JSON")
}

/// Arguments of the `stop` command that a printed line suggests.
#[track_caller]
fn to_stop(said: &str) -> &str {
    let mut lines = said.lines().map(str::trim_start);
    let command = lines.find_map(|line| line.strip_prefix("to stop it: allstop "));
    command.unwrap_or_else(|| panic!("no such line: {said}"))
}

#[test]
fn it_is_stopped_when_the_run_ends() {
    let place = Place::new();
    let ended = place
        .run_script(&leaves("sleep 600"))
        .arg("hello")
        .end()
        .ok();
    place.assert_nothing_runs();
    assert_eq!(ended.stdout, "Started.\n");
    assert!(ended.stderr.contains("sleep 600 (bg_1)"), "{ended:#?}");
    let json = place
        .run_script(&leaves("sleep 600"))
        .args("--json hello")
        .end()
        .ok();
    let envelope = json.envelope();
    assert_eq!(envelope["receipt"]["extent"], "process", "{envelope:#}");
    assert_eq!(
        envelope["receipt"]["items"][0]["state"], "stopped",
        "{envelope:#}"
    );
    let shown = shown(&place, &json.session());
    assert_eq!(shown["background"][0]["alive"], false, "{shown:#}");
    assert_eq!(
        shown["background"][0]["ended"]["state"], "stopped",
        "{shown:#}"
    );
}

#[test]
fn it_is_waited_for_on_request() {
    let place = Place::new();
    let run = place.run_script(&leaves("sleep 0.3; echo x > ended"));
    let ended = run.args("--json --wait-background hello").end().ok();
    assert!(place.work().join("ended").exists());
    let envelope = ended.envelope();
    assert!(envelope["receipt"].is_null(), "{envelope:#}");
    let shown = shown(&place, &ended.session());
    assert_eq!(
        shown["background"][0]["ended"]["state"], "finished",
        "{shown:#}"
    );
    assert_eq!(shown["background"][0]["exit_code"], 0, "{shown:#}");
}

#[test]
fn kept_work_is_named_by_later_commands() {
    let place = Place::new();
    let model = place.script(&leaves("echo here; sleep 600"));
    let run = || place.run().arg("--model").arg(&model);
    let kept = run().args("--keep-background hello").end().ok();
    assert_eq!(kept.stdout, "Started.\n");
    assert!(
        kept.stderr
            .contains("bg_1 keeps running: echo here; sleep 600"),
        "{kept:#?}"
    );
    assert!(!place.leftovers().is_empty());

    let list = place.sessions().args("list --json").end().ok();
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    let session = list["sessions"][0]["session_id"].as_str().expect("an id");
    let before = shown(&place, session);
    let work = &before["background"][0];
    assert_eq!(work["alive"], true, "{work:#}");
    assert_eq!(work["attachment"], "detached", "{work:#}");
    let output = work["output"].as_str().expect("a file");
    eventually("its output", || {
        let output = std::fs::read_to_string(output).ok()?;
        output.contains("here").then_some(())
    });
    let people = place.sessions().arg("show").arg(session).end().ok();
    assert!(
        people.stdout.contains("echo here; sleep 600"),
        "{people:#?}"
    );

    let next = run().arg("--session").arg(session).arg("hello").end().ok();
    let pid = work["stop_pid"].as_i64().expect("a pid") as i32;
    let note = "bg_1 of an earlier process still runs: echo here; sleep 600\n";
    assert!(next.stderr.contains(note), "{next:#?}");
    assert!(
        to_stop(&next.stderr).contains("--store"),
        "the store is not the usual one: {next:#?}"
    );
    assert!(is_alive(pid), "a later run stops nothing that was let go");

    let raw = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(raw, Signal::TERM).expect("it is there");
    eventually("its end", || place.leftovers().is_empty().then_some(()));
    let after = run()
        .args("--json --session")
        .arg(session)
        .arg("hello")
        .end();
    assert_eq!(after.code, 1, "the script has run out: {after:#?}");
    let work = &shown(&place, session)["background"][0];
    assert_eq!(work["ended"]["state"], "unknown", "{work:#}");
}

/// Regression: the printed suggestion was `kill PID`, which returns no receipt, and `ps` did not list the running work.
#[test]
fn the_stop_that_is_offered_for_kept_work_works_as_printed() {
    let place = Place::new();
    let kept = place
        .run_script(&leaves("sleep 600"))
        .args("--keep-background hello");
    let kept = kept.end().ok();
    let offered = to_stop(&kept.stderr);
    let id = place.only_session();
    let shown = place.sessions().arg("show").arg(&id).end().ok();
    assert_eq!(to_stop(&shown.stdout), offered);
    let ps = || place.allstop().args("ps --store").arg(place.store());
    let listed = ps().end().ok();
    assert!(listed.stdout.contains("sleep 600  bg_1"), "{listed:?}");
    assert_eq!(to_stop(&listed.stdout), offered);
    let stopped = place.allstop().args(offered).end().ok();
    let ended = "sleep 600 (bg_1): stopped by SIGTERM";
    assert!(stopped.stdout.contains(ended), "{stopped:?}");
    place.assert_nothing_runs();
    let listed = ps().end().ok();
    let said = "no session is open, and the store has no work that was left running\n";
    assert_eq!(listed.stdout, said);
}

/// Regression: `stop` ignored the flags `--call` and `--extent`, and also ended the background work.
#[test]
fn a_stop_of_a_turn_or_a_call_leaves_kept_work_alone() {
    let place = Place::new();
    let kept = place
        .run_script(&leaves("sleep 600"))
        .args("--json --keep-background hello");
    let id = kept.end().ok().session();
    let stop = |args: &str| {
        let stop = place.allstop().args("stop").args(args);
        stop.arg("--store").arg(place.store()).end()
    };
    for flags in ["--call call_1", "--extent turn"] {
        let ended = stop(&format!("{id} {flags} --json")).ok();
        let answer: Value = serde_json::from_str(&ended.stdout).expect("one object");
        assert_eq!(answer["receipt"]["outcome"], "already_ended", "{answer:#}");
        assert_eq!(answer["stop_reason"], "completed", "{answer:#}");
    }
    let none = stop("--all --extent turn").ok();
    assert_eq!(none.stdout, "nothing to stop: no session is open\n");
    assert!(!place.leftovers().is_empty(), "it still runs");
    stop("--all --extent turn-and-background").ok();
    place.assert_nothing_runs();
}

#[test]
fn kept_work_is_in_the_envelope() {
    let place = Place::new();
    let run = place.run_script(&leaves("sleep 600"));
    let ended = run.args("--json --keep-background hello").end().ok();
    let envelope = ended.envelope();
    let shown = shown(&place, &ended.session());
    let (left, shown) = (&envelope["background"][0], &shown["background"][0]);
    assert_eq!(left["id"], "bg_1", "{envelope:#}");
    assert_eq!(left["name"], "sleep 600", "{envelope:#}");
    assert_eq!(left["pid"], shown["stop_pid"], "{envelope:#} {shown:#}");
    assert_eq!(left["output"], shown["output"], "{envelope:#} {shown:#}");
}

/// After the background shell has started, the store rejects all writes. So neither the end of the turn nor the
/// detachment of the background work can be recorded.
#[test]
fn work_that_cannot_be_kept_is_stopped() {
    let place = Place::new();
    let full = place.work().join("full");
    let rule = format!("write store.db ENOSPC when={}", full.display());
    let fault = Fault::new(&place, &rule);
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'until test -e go; do sleep 0.01; done; touch full; sleep 600', background: true}}]}, {calls: [{tool: shell, arguments: {command: 'touch go; until test -e full; do sleep 0.01; done'}}]}, {text: Started.}]";
    let run = place
        .run_script(script)
        .args("--json --keep-background hello");
    let ended = fault.below(run).end();
    place.assert_nothing_runs();
    assert_eq!(ended.code, 1, "{ended:#?}");
    assert!(
        ended.stderr.contains("background work does not continue: "),
        "{ended:#?}"
    );
    let envelope = ended.envelope();
    assert_eq!(envelope["background"], serde_json::json!([]));
    let items = envelope["receipt"]["items"].as_array().expect("items");
    let background: Vec<_> = items
        .iter()
        .filter(|item| item["kind"] == "background")
        .collect();
    assert_eq!(background.len(), 1, "{envelope:#}");
    // The receipt also lists the work that was stopped because the turn failed.
    let stopped = items.iter().all(|item| item["state"] == "stopped");
    assert!(stopped, "{envelope:#}");
}

/// Script of a run that waits for a file.
fn waiting(place: &Place, go: &str) -> String {
    let go = place.work().join(go);
    format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: 'touch {go}.asked; until test -e {go}; do sleep 0.01; done'}}}}]}}, {{text: Done.}}]",
        go = go.display()
    )
}

#[test]
fn two_runs_at_once_share_a_store_and_can_be_listed_meanwhile() {
    let place = Place::new();
    let one = place
        .run_script(&waiting(&place, "one"))
        .args("--json one")
        .start();
    let two = place
        .run_script(&waiting(&place, "two"))
        .args("--json two")
        .start();
    for go in ["one.asked", "two.asked"] {
        let path = place.work().join(go);
        eventually(go, || path.exists().then_some(()));
    }
    let list = place.sessions().args("list --json").end().ok();
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    let sessions = list["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 2, "{list:#}");
    for session in sessions {
        assert_eq!(session["turn_open"], true, "{session:#}");
        let owner = session["owner"]["pid"].as_i64().expect("a pid") as i32;
        assert!([one.pid(), two.pid()].contains(&owner), "{session:#}");
        // A command that reads the session must not report the running turn as crashed.
        let id = session["session_id"].as_str().expect("an id");
        assert!(shown(&place, id)["turns"][0]["stop_reason"].is_null());
    }
    for go in ["one", "two"] {
        std::fs::write(place.work().join(go), "").expect("a file");
    }
    for running in [one, two] {
        let ended = running.end(crate::support::FACT_MAX).ok();
        assert_eq!(ended.envelope()["stop_reason"], "completed");
    }
}

#[test]
fn a_session_in_use_is_not_taken_over_nor_removed() {
    let place = Place::new();
    let first = place
        .run_script("replies: [{text: Hello.}]")
        .args("--json hello")
        .end()
        .ok();
    let session = first.session();
    // The scripted model counts the earlier answers in the conversation, so it skips the first reply of this script.
    let script = waiting(&place, "go").replace("replies: [", "replies: [{text: Hello.}, ");
    let owner = place
        .run_script(&script)
        .arg("--json")
        .arg("--session")
        .arg(&session);
    let owner = owner.arg("hello").start();
    let asked = place.work().join("go.asked");
    eventually("the call", || asked.exists().then_some(()));

    let second = place
        .run_script("replies: [{text: Hello.}]")
        .arg("--session")
        .arg(&session);
    let second = second.args("--json hello").end();
    assert_eq!(second.code, 1, "{second:#?}");
    let envelope = second.envelope();
    let message = envelope["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains(&format!("{}", owner.pid())),
        "who has it: {message}"
    );
    let hint = envelope["error"]["hint"].as_str().expect("a hint");
    let short_id = &session[session.len() - 8..];
    for command in ["watch", "stop"] {
        let offered = format!("`allstop {command} {short_id}");
        assert!(hint.contains(&offered), "{hint}");
    }
    let removed = place.sessions().arg("rm").arg(&session).end();
    assert_eq!(removed.code, 1, "{removed:#?}");

    std::fs::write(place.work().join("go"), "").expect("a file");
    owner.end(crate::support::FACT_MAX).ok();
    assert_eq!(
        shown(&place, &session)["turns"].as_array().map(Vec::len),
        Some(2)
    );
    place.sessions().arg("rm").arg(&session).end().ok();
    let gone = place.sessions().arg("show").arg(&session).end();
    assert_eq!(gone.code, 2, "{gone:#?}");
}
