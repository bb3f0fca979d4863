//! Stops while orphaned work (background work without an owner) runs, and stops of sessions whose process does not
//! respond.

use serde_json::Value;

use crate::support::{Ended, FACT_MAX, Place, Running, Signal, eventually};

const SCRIPT: &str = r#"
turns:
  - when: server
    replies:
      - calls: [{tool: shell, arguments: {command: "trap '' TERM; echo up > up; sleep 600", background: true}}]
      - text: It is up.
  - when: both
    replies:
      - calls: [{tool: shell, arguments: {command: "trap '' TERM; echo up > up; sleep 600", background: true}}]
      - text: Never.
        stall: first_token
  - when: hang
    replies: [{text: Never., stall: first_token}]
"#;

fn on_store(place: &Place, args: &str) -> Ended {
    let command = place.allstop().args(args).arg("--store");
    command.arg(place.store()).end()
}

fn receipt(ended: &Ended) -> Value {
    let line: Value = serde_json::from_str(ended.stdout.trim()).expect("one line of JSON");
    // A stop of all sessions has a list of stops.
    let stop = line["stops"].get(0).unwrap_or(&line);
    stop["receipt"].clone()
}

/// Creates a session with orphaned work of an earlier run. Returns the id of the session.
fn left_work(place: &Place) -> String {
    let run = place.run_script(SCRIPT);
    let ended = run.args("--keep-background --json server").end().ok();
    eventually("it runs", || place.work().join("up").metadata().ok());
    ended.session()
}

fn hangs(place: &Place, run: crate::support::Allstop<'_>) -> Running {
    let running = run.start();
    eventually("the turn runs", || {
        let listed = on_store(place, "ps").ok().stdout;
        listed.contains("model script").then_some(())
    });
    running
}

/// Regression: the receipt of the stop reported that no work runs, although work of an earlier process was still
/// running.
#[test]
fn narrower_stop_names_work_that_was_left_running() {
    let place = Place::new();
    let id = left_work(&place);
    for extent in ["turn", "session"] {
        let run = place
            .run_script(SCRIPT)
            .args(&format!("--session {id} hang"));
        let running = hangs(&place, run);
        let preview = on_store(&place, &format!("stop {id} --extent {extent} --preview")).ok();
        assert!(preview.stdout.contains("bg_1"), "{}", preview.stdout);
        let stopped = on_store(&place, &format!("stop {id} --extent {extent} --json")).ok();
        let stopped = receipt(&stopped);
        let items = stopped["items"].as_array().expect("items");
        let work = items.iter().find(|item| item["id"] == "bg_1");
        let work = work.unwrap_or_else(|| panic!("{stopped:#}"));
        assert_eq!(work["why"], "outside_extent", "{stopped:#}");
        let ended = running.end(FACT_MAX);
        assert!(ended.stderr.contains("bg_1"), "{}", ended.stderr);
    }
    let stopped = receipt(&on_store(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["quiet"], true, "{stopped:#}");
    place.assert_nothing_runs();
}

/// Regression: the run detached its background work while a stop of this work was in progress. So no process observed
/// the end of the work.
#[test]
fn stop_covers_work_that_the_run_would_keep() {
    let place = Place::new();
    let run = place.run_script(SCRIPT);
    let run = run.args("--keep-background --grace 300ms both");
    let running = hangs(&place, run);
    let stopped = receipt(&on_store(&place, "stop last --json").ok());
    assert_eq!(stopped["quiet"], true, "{stopped:#}");
    let items = stopped["items"].as_array().expect("items");
    let work = items.iter().find(|item| item["id"] == "bg_1");
    assert_eq!(
        work.expect("it is named")["state"],
        "stopped",
        "{stopped:#}"
    );
    let ended = running.end(FACT_MAX);
    assert!(!ended.stderr.contains("keeps running"), "{}", ended.stderr);
    place.assert_nothing_runs();
}

/// Orphaned work also gets its grace (the time to end by itself) if a later run has the session open.
#[test]
fn left_work_has_its_grace_in_a_later_run() {
    let place = Place::new();
    let script = SCRIPT.replace(
        "trap '' TERM;",
        "trap 'sleep 0.3; echo x > cleaned; exit' TERM;",
    );
    let script = script.replace("sleep 600", "sleep 600 & wait");
    let run = place.run_script(&script);
    let ended = run.args("--keep-background --json server").end().ok();
    let id = ended.session();
    let run = place
        .run_script(&script)
        .args(&format!("--session {id} hang"));
    let running = hangs(&place, run);
    let stopped = receipt(&on_store(&place, &format!("stop {id} --json")).ok());
    assert_eq!(stopped["quiet"], true, "{stopped:#}");
    running.end(FACT_MAX);
    assert!(place.work().join("cleaned").exists(), "{stopped:#}");
    place.assert_nothing_runs();
}

/// Regression: if the process of a session had its socket in another folder, the command reported that no session is
/// open and no orphaned work runs.
#[test]
fn session_of_a_process_without_a_socket_here_is_named() {
    let place = Place::new();
    let elsewhere = place.path("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    let run = place.run_script(SCRIPT).args("hang");
    let running = run.env("XDG_RUNTIME_DIR", &elsewhere).start();
    let said = "has no socket here";
    let listed = eventually("the run has its session open", || {
        let listed = on_store(&place, "ps");
        listed.stdout.contains(said).then_some(listed)
    });
    // Regression: the exit code was 0, although work of the session may run that is not listed.
    assert_eq!(listed.code, 1, "{listed:?}");
    let stopped = on_store(&place, "stop --all");
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(stopped.stderr.contains(said), "{stopped:?}");
    assert!(!stopped.stdout.contains("nothing to stop"), "{stopped:?}");
    // Regression: the error was "no session is open".
    let stopped = on_store(&place, "stop last");
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(stopped.stderr.contains(said), "{stopped:?}");
    assert_eq!(running.end_by(Signal::INT).code, 130);
}

/// Regression: the exit code of `ps` was 0, which means that the list is complete.
#[test]
fn ps_of_an_unreadable_store_is_incomplete() {
    let place = Place::new();
    let store = place.file(
        "notes.txt",
        "These are my notes. They are no store of sessions.",
    );
    let listed = place.allstop().args("ps --json --store").arg(store).end();
    assert_eq!(listed.code, 1, "{listed:?}");
    let report: Value = serde_json::from_str(&listed.stdout).expect("one object");
    let problem = report["problems"][0].as_str().expect("a problem");
    assert!(problem.contains("is not listed"), "{report:#}");
    // A store that does not exist contains no work.
    let absent = place.allstop().args("ps --store").arg(place.path("no.db"));
    absent.end().ok();
}

/// Regression: for a session whose process did not answer, the command reported that no process has it open, and
/// suggested a stop of orphaned work.
#[test]
fn silent_process_is_named_and_is_no_problem_of_other_sessions() {
    let place = Place::new();
    let left = left_work(&place);
    let mut silent = hangs(&place, place.run_script(SCRIPT).args("hang"));
    let listed = on_store(&place, "sessions list --json").ok().stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let ids = listed["sessions"].as_array().expect("a list").iter();
    let mut ids = ids.filter_map(|session| session["session_id"].as_str());
    let id = ids.find(|id| *id != left).expect("the session of the run");
    silent.signal(Signal::STOP);
    let said = "does not answer";
    for extent in ["turn", "turn-and-background"] {
        let stopped = on_store(&place, &format!("stop {id} --extent {extent}"));
        assert_eq!(stopped.code, 1, "{stopped:?}");
        assert!(stopped.stderr.contains(said), "{stopped:?}");
    }
    let other = on_store(&place, &format!("stop {left}")).ok();
    assert!(!other.stderr.contains(said), "{}", other.stderr);
    silent.signal(Signal::CONT);
    assert_eq!(silent.end_by(Signal::INT).code, 130);
    place.assert_nothing_runs();
}

/// One process is suspended. `stop --all` still stops the orphaned work, and its exit code reports the problem.
#[test]
fn stop_of_all_names_a_suspended_process() {
    let place = Place::new();
    let left = left_work(&place);
    let mut silent = hangs(&place, place.run_script(SCRIPT).args("hang"));
    silent.signal(Signal::STOP);
    let said = format!("process {} does not answer", silent.pid());
    let stop = |args: &str| {
        let stop = place.allstop().args("stop --all").args(args);
        stop.arg("--store").arg(place.store()).start()
    };
    // Both commands run in parallel, because each waits some time for the suspended process.
    let (turns, all) = (stop("--extent turn"), stop("--now --json"));
    let (turns, all) = (turns.end(FACT_MAX), all.end(FACT_MAX));
    let listed = place.allstop().args("ps --json").end();
    for stopped in [&turns, &all, &listed] {
        assert_eq!(stopped.code, 1, "{stopped:?}");
        assert_eq!(stopped.stderr.lines().count(), 1, "{stopped:?}");
        assert!(stopped.stderr.contains(&said), "{stopped:?}");
    }
    assert_eq!(turns.stdout, "", "a turn may run there");
    assert!(all.stdout.contains(&left), "{all:?}");
    // On a loaded machine, the killed work may not have ended yet. The receipt must then report this.
    let stopped = receipt(&all);
    if stopped["quiet"] == true {
        let left = format!("{:?}", place.leftovers());
        assert!(!left.contains("sleep 600"), "{left}: {all:?}");
    } else {
        assert_eq!(stopped["items"][0]["why"], "processes_left", "{all:?}");
    }
    silent.signal(Signal::CONT);
    assert_eq!(silent.end_by(Signal::INT).code, 130);
    eventually("nothing runs", || {
        place.leftovers().is_empty().then_some(())
    });
}

/// Returns the command in the hint that begins with these words, without `allstop`.
fn hinted(ended: &Ended, words: &str) -> String {
    let mut commands = ended.stderr.split('`').skip(1).step_by(2);
    let found = commands.find_map(|command| {
        command
            .strip_prefix("allstop ")
            .filter(|rest| rest.starts_with(words))
    });
    found.unwrap_or_else(|| panic!("{ended:?}")).to_owned()
}

/// A run continues a session that another process has open. Its hint names a remedy, and the remedy works.
#[test]
fn hint_for_a_session_in_use_works() {
    let place = Place::new();
    let mut running = hangs(&place, place.run_script(SCRIPT).args("hang"));
    let id = place.only_session();
    let again = || {
        let run = place.run_script(SCRIPT);
        run.args(&format!("--session {id} server")).end()
    };
    let refused = again();
    assert_eq!(refused.code, 1, "{refused:?}");
    let stop = hinted(&refused, "stop");
    running.signal(Signal::STOP);
    let silent = again();
    assert_eq!(silent.code, 1, "{silent:?}");
    let proceed = format!("`kill -CONT {}`", running.pid());
    assert!(silent.stderr.contains(&proceed), "{silent:?}");
    running.signal(Signal::CONT);
    place.allstop().args(&stop).end().ok();
    running.end(FACT_MAX);
    again().ok();
}

/// `ps --json` contains everything that `ps` lists: open sessions, suspended processes, and work that was left running.
#[test]
fn ps_as_json_lists_suspended_processes_and_left_work() {
    let place = Place::new();
    let left = left_work(&place);
    let mut silent = hangs(&place, place.run_script(SCRIPT).args("hang"));
    let open = hangs(&place, place.run_script(SCRIPT).args("hang"));
    silent.signal(Signal::STOP);
    let listed = on_store(&place, "ps --json");
    silent.signal(Signal::CONT);
    assert_eq!(listed.code, 1, "{listed:?}");
    let report: Value = serde_json::from_str(listed.stdout.trim()).expect("one object");
    let of = |pid: i32| {
        let mut processes = report["processes"].as_array().expect("a list").iter();
        processes.find(|process| process["pid"] == pid)
    };
    assert_eq!(
        of(open.pid()).expect("the open process")["problem"],
        Value::Null
    );
    let sessions = report["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 1, "{report:#}");
    assert_eq!(sessions[0]["pid"], open.pid(), "{report:#}");
    let silent_process = of(silent.pid()).expect("the suspended process");
    let problem = silent_process["problem"].as_str().expect("text");
    assert!(problem.contains("does not answer"), "{problem}");
    assert_eq!(report["problems"][0], problem, "{report:#}");
    let left_session = &report["left_sessions"][0];
    assert_eq!(left_session["session_id"], *left, "{report:#}");
    let work = &left_session["left_work"][0];
    assert_eq!(work["id"], "bg_1", "{report:#}");
    assert_eq!(work["detached"], true, "{report:#}");
    assert!(work["pid"].is_u64(), "{report:#}");
    for running in [silent, open] {
        assert_eq!(running.end_by(Signal::INT).code, 130);
    }
    on_store(&place, &format!("stop {left}")).ok();
    place.assert_nothing_runs();
}

/// Regression: the keeper process of the work was killed. The receipt of a stop then claimed that the work had provably
/// ended, although a process with a cleared environment was still running.
#[test]
fn work_without_its_keeper_has_the_weaker_evidence() {
    let place = Place::new();
    let id = left_work(&place);
    let shown = on_store(&place, &format!("sessions show {id} --json")).ok();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let keeper = shown["background"][0]["keeper"]["pid"].as_i64();
    let keeper = rustix::process::Pid::from_raw(keeper.expect("a pid") as i32).expect("a pid");
    rustix::process::kill_process(keeper, Signal::KILL).expect("it runs");
    let stopped = on_store(&place, &format!("stop {id} --json")).ok();
    let item = &receipt(&stopped)["items"][0];
    assert_eq!(item["verified"], "process_group_empty", "{item:#}");
    let note = item["note"].as_str().unwrap_or_default();
    assert!(note.contains("its keeper was killed earlier"), "{item:#}");
    let told = on_store(&place, &format!("receipt {id}")).ok().stdout;
    assert!(told.contains("far as a search can find"), "{told}");
    place.assert_nothing_runs();
}
