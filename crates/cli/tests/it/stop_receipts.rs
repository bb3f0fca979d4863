//! Receipts of stops that cover less or more than one turn: calls, hooks, background work. Each receipt must be in the
//! envelope (JSON result) of the run and in the log.

use serde_json::Value;

use crate::support::fault::Fault;
use crate::support::{Ended, FACT_MAX, Place, Running, Signal, eventually};

fn json(ended: &Ended) -> Value {
    serde_json::from_str(ended.stdout.trim()).unwrap_or_default()
}

fn on_store(place: &Place, args: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.store()).end()
}

fn begin(place: &Place, script: &str, args: &str) -> Running {
    place.run_script(script).args("--json").args(args).start()
}

/// Waits until the output of `ps` contains this text.
fn listed(place: &Place, what: &str) {
    eventually(what, || {
        let listed = on_store(place, "ps").stdout;
        listed.contains(what).then_some(())
    });
}

fn ids(envelope: &Value) -> Vec<&Value> {
    let receipts = envelope["receipts"].as_array().expect("receipts");
    receipts.iter().map(|receipt| &receipt["stop_id"]).collect()
}

#[test]
fn stop_of_a_call_is_in_the_envelope() {
    let place = Place::new();
    let script =
        "replies: [{calls: [{tool: shell, arguments: {command: sleep 60}}]}, {text: Done.}]";
    let running = begin(&place, script, "hello");
    listed(&place, "call_1_1");
    let stopped = json(&on_store(&place, "stop last --call call_1_1 --json").ok());
    let envelope = running.end(FACT_MAX).ok().envelope();
    assert_eq!(envelope["stop_reason"], "completed", "the turn goes on");
    assert_eq!(envelope["receipt"], stopped["receipt"], "{envelope:#}");
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(stored, stopped["receipt"]);
}

/// A call is stopped, and then the turn. The receipt of the turn is the last receipt of the session, although the log
/// gets the receipt of the call later.
#[test]
fn stop_of_a_call_does_not_hide_a_later_one() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60}}]}, {text: Never., stall: first_token}]";
    let running = begin(&place, script, "hello");
    listed(&place, "call_1_1");
    let call = json(&on_store(&place, "stop last --call call_1_1 --json").ok());
    listed(&place, "step_2");
    let envelope = running.end_by(Signal::INT).envelope();
    assert_eq!(ids(&envelope).len(), 2, "{envelope:#}");
    assert_eq!(ids(&envelope)[0], &call["receipt"]["stop_id"]);
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(envelope["receipt"], stored, "{envelope:#}");
    assert_eq!(stored["cause"]["detail"], "ctrl-c");
}

/// Regression: a wider stop was requested while a stop was running. The envelope did not contain the receipt that the
/// requester of the wider stop got.
#[test]
fn wider_stop_during_a_stop_is_in_the_envelope() {
    let place = Place::new();
    let script = r#"replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; echo x > begun; sleep 60 & wait"}}]}]"#;
    let mut running = begin(&place, script, "--grace 2s hello");
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    running.signal(Signal::INT);
    let wider = json(&on_store(&place, "stop last --extent session --json").ok());
    let envelope = running.end(FACT_MAX).envelope();
    let receipts = envelope["receipts"].as_array().expect("receipts");
    assert!(receipts.contains(&wider["receipt"]), "{envelope:#}");
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(envelope["receipt"], stored);
    place.assert_nothing_runs();
}

/// Regression: a hook at the end of the session was stopped. The receipt was missing in the log, because the session
/// had already written its last record.
#[test]
fn stop_of_a_hook_at_the_end_of_the_session_is_in_the_log() {
    let place = Place::new();
    let begun = place.path("begun");
    let toml = format!(
        "[[hooks]]\non = \"session_end\"\ncommand = \"touch {}; sleep 60\"\n",
        begun.display()
    );
    let config = place.file("hooks.toml", toml);
    let run = place.run_script("replies: [{text: Done.}]");
    let run = run.args("--json --grace 500ms --config").arg(config);
    let running = run.arg("hello").start();
    eventually("the hook runs", || begun.exists().then_some(()));
    let envelope = running.end_by(Signal::INT).envelope();
    assert!(envelope["receipt"].is_object(), "{envelope:#}");
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(envelope["receipt"], stored);
    place.assert_nothing_runs();
}

/// Several stops of the same work run concurrently. Regression: only the stop that opened the session succeeded, and
/// all other stops failed.
#[test]
fn stops_of_the_same_kept_work_all_answer() {
    let place = Place::new();
    let script = r#"replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; echo x > begun; sleep 60 & wait", background: true}}]}, {text: Done.}]"#;
    let id = begin(&place, script, "--keep-background hello");
    let id = id.end(FACT_MAX).ok().session();
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    let stop = || {
        let stop = place.allstop().args(&format!("stop {id} --json --store"));
        stop.arg(place.store()).start()
    };
    let stops = [stop(), stop(), stop(), stop()];
    let answers = stops.map(|stop| json(&stop.end(FACT_MAX).ok()));
    let stopped = answers
        .iter()
        .filter(|answer| answer["receipt"]["outcome"].is_null());
    assert_eq!(stopped.count(), 1, "{answers:#?}");
    place.assert_nothing_runs();
}

#[test]
fn one_piece_of_background_work_is_stopped_by_its_id() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}, {tool: shell, arguments: {command: sleep 61, background: true}}]}, {text: Done.}]";
    let running = begin(&place, script, "--wait-background hello");
    listed(&place, "bg_2");
    let stopped = json(&on_store(&place, "stop last --call bg_1 --json").ok());
    assert_eq!(stopped["receipt"]["items"][0]["id"], "bg_1", "{stopped:#}");
    assert_eq!(stopped["receipt"]["items"][0]["state"], "stopped");
    listed(&place, "bg_2");
    let envelope = running.end_by(Signal::INT).envelope();
    assert_eq!(ids(&envelope).len(), 2, "{envelope:#}");
    place.assert_nothing_runs();
}

/// The process of the session was killed. Regression: a stop answered `already_ended` with `quiet: true`, while keeper
/// processes were still ending the session's commands.
#[test]
fn stop_after_the_owner_was_killed_waits_for_its_processes() {
    for all in [false, true] {
        let place = Place::new();
        let command = "for i in $(seq 400); do setsid sleep 600 & done; echo x > begun; wait";
        let script = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]}}]"
        );
        let running = begin(&place, &script, "hello");
        let begun = place.work().join("begun");
        eventually("the command runs", || begun.exists().then_some(()));
        let report = json(&on_store(&place, "ps --json"));
        let id = report["sessions"][0]["session_id"].as_str();
        let id = id.expect("an open session");
        running.end_by(Signal::KILL);
        let which = if all { "--all" } else { id };
        let stopped = on_store(&place, &format!("stop {which} --json")).ok();
        let left = place.leftovers();
        assert!(left.is_empty(), "{} are left after {which}", left.len());
        if !all {
            let receipt = &json(&stopped)["receipt"];
            assert_eq!(receipt["outcome"], "already_ended", "{receipt:#}");
            assert_eq!(receipt["may_miss"], "escaped_processes", "{receipt:#}");
        }
    }
}

/// A process that no search finds. It is killed at the end of the test.
struct EscapedProcess(rustix::process::Pid);

impl EscapedProcess {
    /// The process whose pid is in this file.
    fn new(file: &std::path::Path) -> Self {
        let pid = std::fs::read_to_string(file).expect("a pid");
        let pid = pid.trim().parse().ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        Self(pid.expect("a pid"))
    }
}

impl Drop for EscapedProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended_before = rustix::process::kill_process(self.0, Signal::KILL);
    }
}

/// A process clears its environment and loses its parent before owner and keeper are killed, so no search finds it.
/// Regression: the receipt of a stop did not mention this weakness.
#[test]
fn stop_after_a_crash_names_processes_that_a_search_can_miss() {
    let place = Place::new();
    let script = r#"turns: [{when: again, replies: [{text: Here.}]}, {replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; env -i setsid sleep 600 & echo $! > ../escaped; echo x > begun; exec sleep 601"}}]}]}]"#;
    let running = begin(&place, script, "hello");
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    let _escaped = EscapedProcess::new(&place.path("escaped"));
    let id = kill_with_keeper(&place, running);
    on_store(&place, &format!("stop {id}")).ok();
    for later_turn in [false, true] {
        if later_turn {
            let again = begin(&place, script, &format!("--session {id} again"));
            again.end(FACT_MAX).ok();
        }
        for args in ["--preview --json", "--json"] {
            let stopped = json(&on_store(&place, &format!("stop {id} {args}")).ok());
            let receipt = &stopped["receipt"];
            assert_eq!(receipt["outcome"], "already_ended", "{receipt:#}");
            assert_eq!(receipt["may_miss"], "escaped_processes", "{receipt:#}");
        }
        let text = on_store(&place, &format!("stop {id}")).ok().stdout;
        assert!(text.contains("as far as a search can find"), "{text}");
        let turn = json(&on_store(&place, &format!("stop {id} --extent turn --json")).ok());
        assert_eq!(turn["receipt"].get("may_miss"), None, "{turn:#}");
    }
}

/// A session without a crash has the plain receipt.
#[test]
fn stop_of_an_ended_session_misses_nothing() {
    let place = Place::new();
    let id = begin(&place, "replies: [{text: Hello.}]", "hello");
    let id = id.end(FACT_MAX).ok().session();
    let stopped = json(&on_store(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["receipt"]["outcome"], "already_ended");
    assert_eq!(stopped["receipt"].get("may_miss"), None, "{stopped:#}");
}

/// Kills the process of a session and the keeper of its command together. The processes of the command then have no
/// owner and no keeper. Returns the id of the session.
fn kill_with_keeper(place: &Place, running: Running) -> String {
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    let report = json(&on_store(place, "ps --json"));
    let id = report["sessions"][0]["session_id"].as_str();
    let id = id.expect("an open session").to_owned();
    running.end_with_keeper(place);
    id
}

/// A turn with a tree of processes that ignore SIGTERM, in several Unix sessions. The second turn only answers.
const DEFIANT: &str = r#"turns: [{when: again, replies: [{text: Here.}]}, {replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; setsid sh -c 'sleep 600 & setsid sleep 601 & echo x > begun; wait; sleep 602' & wait"}}]}]}]"#;

/// Regression: `ps` and `stop` named only the session of such processes, and no stop ended them.
#[test]
fn stop_ends_processes_without_owner_and_keeper() {
    for (which, has_later_turn) in [("", false), ("--all", false), ("--all", true)] {
        let place = Place::new();
        let running = begin(&place, DEFIANT, "hello");
        let id = kill_with_keeper(&place, running);
        if has_later_turn {
            let again = begin(&place, DEFIANT, &format!("--session {id} again"));
            again.end(FACT_MAX).ok();
        }
        let listed = json(&on_store(&place, "ps --json").ok());
        assert_eq!(listed["problems"], serde_json::json!([]), "{listed:#}");
        let left = &listed["left_sessions"][0];
        let running = place.leftovers();
        assert_eq!(left["session_id"], *id, "{listed:#}, {running:?}");
        let work = left["left_work"][0]["id"].as_str().expect("work");
        let removed = on_store(&place, &format!("sessions rm {id}"));
        assert!(removed.stderr.contains("still runs"), "{removed:?}");
        assert_eq!(removed.code, 1);
        let which = if which.is_empty() { &*id } else { which };
        let stops = |ended: &Ended| {
            let stopped = json(ended);
            let stops = stopped["stops"].as_array().cloned();
            let stop = stops.map_or(stopped.clone(), |stops| stops[0].clone());
            stop["receipt"].clone()
        };
        let preview = stops(&on_store(&place, &format!("stop {which} --preview --json")).ok());
        assert_eq!(preview["quiet"], false, "{preview:#}");
        assert_eq!(preview["items"][0]["id"], *work, "{preview:#}");
        assert_eq!(preview["items"][0]["state"], "still_running");
        assert!(place.leftovers().len() >= 3, "a preview stops nothing");
        let receipt = stops(&on_store(&place, &format!("stop {which} --json")).ok());
        assert_eq!(receipt["quiet"], true, "{receipt:#}");
        let items = receipt["items"].as_array().expect("items");
        assert_eq!(items.len(), 1, "{receipt:#}");
        assert_eq!(items[0]["id"], *work, "{receipt:#}");
        assert_eq!(items[0]["state"], "stopped", "{receipt:#}");
        assert_eq!(items[0]["how"], "sigkill", "{receipt:#}");
        assert_eq!(items[0]["verified"], "process_group_empty", "{receipt:#}");
        place.assert_nothing_runs();
        let stored = json(&on_store(&place, &format!("receipt {id} --json")).ok());
        assert_eq!(stored["stop_id"], receipt["stop_id"]);
    }
}

/// Regression: the hint was `kill PID`, which ends one of the processes and returns no receipt.
#[test]
fn stop_of_the_turn_names_the_stop_that_ends_left_processes() {
    let place = Place::new();
    let running = begin(&place, DEFIANT, "hello");
    let id = kill_with_keeper(&place, running);
    let narrow = on_store(&place, &format!("stop {id} --extent turn"));
    assert_eq!(narrow.code, 1, "{narrow:?}");
    assert!(narrow.stderr.contains("processes still run"), "{narrow:?}");
    let mut hints = narrow.stderr.split('`').skip(1).step_by(2);
    let hint = hints.find_map(|hint| hint.strip_prefix("allstop stop "));
    let hint = hint.unwrap_or_else(|| panic!("{narrow:?}"));
    let stopped = json(
        &place
            .allstop()
            .args(&format!("stop {hint} --json"))
            .end()
            .ok(),
    );
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped:#}");
    place.assert_nothing_runs();
}

/// The markers of the processes name the session, but their owner lives, or is not in the log of the session. So the
/// processes belong to a session of another store, whose id is equal.
#[test]
fn stop_spares_processes_of_other_owners() {
    let place = Place::new();
    let running = begin(&place, DEFIANT, "hello");
    let id = kill_with_keeper(&place, running);
    let start = |owner: String| {
        let mut sleeper = std::process::Command::new("sleep");
        sleeper
            .arg("600")
            .env("ALLSTOP_CALL", format!("{id}.@{owner}.01JD"));
        sleeper.spawn().expect("it starts")
    };
    let this = allstop_process::this_process();
    let mut of_living = start(format!("{}-{}", this.pid, this.start_ticks));
    let stopped = json(&on_store(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped:#}");
    place.assert_nothing_runs();
    // No process has this start time.
    let mut of_unknown = start(format!("{}-{}", this.pid, u64::MAX));
    let unknown = on_store(&place, &format!("stop {id}"));
    assert!(
        unknown.stderr.contains("1 process still runs"),
        "{unknown:?}"
    );
    assert_eq!(unknown.code, 1);
    for spared in [&mut of_living, &mut of_unknown] {
        assert!(spared.try_wait().expect("it is a child").is_none());
        spared.kill().expect("it runs");
        spared.wait().expect("it is a child");
    }
}

/// A turn is stopped from another terminal, and then the user presses Ctrl-C. Regression: this press counted as a
/// second Ctrl-C, so the run exited before the end of the background work was proved.
#[test]
fn signal_during_a_turn_stop_ends_background_work() {
    let place = Place::new();
    let script = r#"replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; sleep 600 & wait", background: true}}, {tool: shell, arguments: {command: "trap 'echo x > asked' TERM; echo x > begun; while :; do sleep 0.05; done"}}]}]"#;
    let mut running = begin(&place, script, "hello");
    let begun = place.work().join("begun");
    eventually("the command runs", || begun.exists().then_some(()));
    listed(&place, "bg_1");
    let stop = place
        .allstop()
        .args("stop last --extent turn --json --store");
    let stop = stop.arg(place.store()).start();
    let asked = place.work().join("asked");
    eventually("the stop is under way", || asked.exists().then_some(()));
    running.signal(Signal::INT);
    let envelope = running.end(FACT_MAX).envelope();
    drop(stop.end(FACT_MAX));
    for receipt in envelope["receipts"].as_array().expect("receipts") {
        assert_eq!(receipt["quiet"], true, "{envelope:#}");
    }
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(envelope["receipt"], stored);
    place.assert_nothing_runs();
}

/// Regression: the event `background_started` was never sent, so `ps` could not show the age of the work.
#[test]
fn start_of_background_work_is_an_event() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 600, background: true}}]}, {text: Never., stall: first_token}]";
    let run = place.run_script(script).args("--stream-json hello");
    let running = run.start();
    let age = || {
        let report = json(&on_store(&place, "ps --json"));
        let mut work = report["sessions"][0]["work"].as_array()?.iter();
        let background = work.find(|work| work["id"] == "bg_1")?;
        background["age_ms"].as_u64()
    };
    eventually("the age of the work", age);
    let ended = running.end_by(Signal::INT);
    let events = ended.stdout.lines();
    let mut events = events.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let started = events.find(|event| event["event"] == "background_started");
    assert_eq!(started.expect("the event")["id"], "bg_1");
}

/// Regression: the wait for the receipt of the stopped call fixed the time of the exit. So the run exited three seconds
/// later, with code 130. A signal during the wait for background work used force at once.
#[test]
fn stop_of_a_call_does_not_limit_the_wait_for_background_work() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}, {tool: shell, arguments: {command: sleep 61}}]}, {text: Done.}]";
    let running = begin(&place, script, "--wait-background hello");
    listed(&place, "call_1_2");
    let call = json(&on_store(&place, "stop last --call call_1_2 --json").ok());
    assert_eq!(call["receipt"]["items"][0]["state"], "stopped", "{call:#}");
    let is_committed = || {
        let shown = on_store(&place, "sessions show last").stdout;
        shown.contains("completed").then_some(())
    };
    eventually("the turn is committed", is_committed);
    let ended = running.end_by(Signal::TERM);
    let envelope = ended.envelope();
    assert_eq!(ended.code, 143, "{envelope:#}");
    assert_eq!(envelope["cause"]["kind"], "shutdown", "{envelope:#}");
    let item = &envelope["receipt"]["items"][0];
    assert_eq!(
        [&item["id"], &item["how"]],
        ["bg_1", "sigterm"],
        "{envelope:#}"
    );
    assert_eq!(ids(&envelope).len(), 2, "{envelope:#}");
    let stored = json(&on_store(&place, "receipt last --json").ok());
    assert_eq!(envelope["receipt"], stored);
    place.assert_nothing_runs();
}

/// A daemon starts a process on behalf of the call. Regression: the search for processes with the variable of the call
/// covered only children of the first process, and children of the stop's ancestors.
#[test]
fn kept_work_of_a_daemon_is_found_by_its_variable() {
    let place = Place::new();
    let in_work = |command: &str| {
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", command]).current_dir(place.work());
        shell.spawn().expect("a shell")
    };
    assert!(in_work("mkfifo asked").wait().expect("it ends").success());
    let job = place.sleeper();
    let mut daemon = in_work(&format!(
        "read call < asked; ALLSTOP_CALL=$call setsid {job} & echo x > begun; wait"
    ));
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'echo $ALLSTOP_CALL > asked; sleep 60', background: true}}]}, {text: Done.}]";
    let id = begin(&place, script, "--keep-background hello");
    let id = id.end(FACT_MAX).ok().session();
    let begun = place.work().join("begun");
    eventually("the job runs", || begun.exists().then_some(()));
    let stopped = json(&on_store(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["receipt"]["quiet"], true, "{stopped:#}");
    daemon.wait().expect("its job has ended");
    place.assert_nothing_runs();
}

/// Regression: a slow hook prevented the detachment of the background work, and the work was killed.
#[test]
fn slow_hook_does_not_end_kept_work() {
    let place = Place::new();
    let begun = place.path("begun");
    let toml = format!(
        "[[hooks]]\non = \"stop\"\ncommand = \"touch {}; sleep 60\"\n",
        begun.display()
    );
    let config = place.file("hooks.toml", toml);
    let script = format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: {}, background: true}}}}]}}, {{text: Never., stall: first_token}}]",
        place.sleeper()
    );
    let run = place.run_script(&script);
    let run = run.args("--json --grace 500ms --keep-background --config");
    let mut running = run.arg(config).arg("hello").start();
    listed(&place, "step_2");
    running.signal(Signal::INT);
    eventually("the hook runs", || begun.exists().then_some(()));
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{ended:#?}");
    let envelope = ended.envelope();
    assert_eq!(envelope["background"][0]["id"], "bg_1", "{ended:#?}");
    listed(&place, "bg_1");
    // The run has two receipts: of the turn, and of the hook, which was stopped at the exit. The log contains one of
    // them as the last receipt.
    let stored = json(&on_store(&place, "receipt last --json").ok());
    let all = envelope["receipts"].as_array().expect("receipts");
    assert!(all.contains(&stored), "{envelope:#} {stored:#}");
    assert_eq!(envelope["receipt"], stored);
    on_store(&place, "stop last").ok();
    place.assert_nothing_runs();
}

/// The receipt of the last stop could not be stored. Regression: `allstop receipt` showed the receipt of the previous
/// turn, with exit code 0.
#[test]
fn unsaved_receipt_is_reported_as_lost() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60}}]}]";
    let first = place.run_script(script).args("--json hello").start();
    listed(&place, "call_1_1");
    assert_eq!(first.end_by(Signal::INT).code, 130);
    let full = place.work().join("full");
    let fault = Fault::new(
        &place,
        &format!("write store.db ENOSPC when={}", full.display()),
    );
    let folder = place.work().join("out");
    std::fs::create_dir(&folder).expect("the working folder is there");
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'rmdir out; touch full; sleep 60'}}]}]";
    let second = place
        .run_script(script)
        .args("--continue --json --receipt-file");
    let second = second.arg(folder.join("receipt.json")).arg("again");
    let second = fault.below(second).start();
    eventually("the store is full", || full.exists().then_some(()));
    let second = second.end_by(Signal::INT);
    assert!(second.envelope()["receipt"].is_object(), "{second:#?}");
    assert!(second.stderr.contains("keep this output"), "{second:#?}");
    let stderr = &second.stderr;
    assert!(
        stderr.contains("cannot write the receipt to"),
        "{second:#?}"
    );
    assert!(
        !stderr.contains("the session keeps the receipt"),
        "{second:#?}"
    );
    let receipt = on_store(&place, "receipt last");
    let receipt = receipt.ok().stdout;
    assert!(receipt.contains("Turn 2 was cut off"), "{receipt}");
    assert!(receipt.contains("outcome unknown"), "{receipt}");
    let shown = on_store(&place, "sessions show last").ok().stdout;
    assert!(shown.contains("no end in the log"), "{shown}");
    place.assert_nothing_runs();
}

/// The receipt of background work could not be stored. Regression: because the turn had been committed, the run printed
/// no warning.
#[test]
fn unsaved_background_receipt_is_reported() {
    let place = Place::new();
    let full = place.work().join("full");
    let rule = format!("write store.db ENOSPC when={}", full.display());
    let fault = Fault::new(&place, &rule);
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 60, background: true}}]}, {text: Done.}]";
    let run = place
        .run_script(script)
        .args("--json --wait-background hello");
    let mut running = fault.below(run).start();
    let committed = || {
        let shown = on_store(&place, "sessions show last").stdout;
        shown.contains("completed").then_some(())
    };
    eventually("the turn is committed", committed);
    std::fs::write(&full, "").expect("the folder is there");
    running.signal(Signal::INT);
    let ended = running.end(FACT_MAX);
    assert!(ended.envelope()["receipt"].is_object(), "{ended:#?}");
    assert!(ended.stderr.contains("keep this output"), "{ended:#?}");
    place.assert_nothing_runs();
}
