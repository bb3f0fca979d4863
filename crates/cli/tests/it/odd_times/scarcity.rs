//! Runs on a system without free resources: threads, processes, file descriptors, file sizes.

use std::os::unix::fs::chown;

use rustix::process::geteuid;

use crate::support::fault::Fault;
use crate::support::{Ended, FACT_MAX, Place};

const SCRIPT: &str = "replies: [{calls: [{tool: shell, arguments: {command: echo x}}, {tool: list, arguments: {}}]}, {text: Hello.}]";

/// Checks a run that lacked a resource. The process must end without a panic, leave no process, and print exactly one
/// envelope. The envelope must be true about the work that was done.
#[track_caller]
fn check(given: impl std::fmt::Debug, place: &Place, ended: &Ended) {
    place.assert_nothing_runs();
    assert!(!ended.stderr.contains("panicked"), "{given:?}: {ended:#?}");
    let envelope = ended.envelope();
    match ended.code {
        0 => assert_eq!(envelope["output"], "Hello.", "{given:?}: {envelope:#}"),
        1 => assert!(
            envelope["error"]["message"].is_string(),
            "{given:?}: {envelope:#}"
        ),
        _ => panic!("{given:?}: {ended:#?}"),
    }
}

#[test]
fn no_more_threads() {
    // The process first checks the resources with test threads. This test also makes later threads fail.
    for after in [0, 5].into_iter().chain(11..40) {
        let place = Place::new();
        let fault = Fault::new(&place, &format!("thread * EAGAIN skip={after}"));
        let run = fault.below(place.run_script(SCRIPT).args("--json hello"));
        check(after, &place, &run.end());
    }
}

/// The user of the run may have only a few processes; threads count as processes. Root has no such limit, so the run
/// gets a separate user without other processes.
#[test]
fn no_more_processes() {
    let uid = 300_000 + std::process::id() % 100_000;
    for limit in 1..=32 {
        let place = Place::new();
        let run = place.run_script(SCRIPT).args("--json hello").by_user(uid);
        if geteuid().is_root() {
            for folder in ["", "work"] {
                chown(place.path(folder), Some(uid), None).expect("an owner");
            }
        }
        let ended = run.by(&format!("prlimit --nproc={limit}")).end();
        check(limit, &place, &ended);
    }
}

/// A tool call that cannot get a thread fails with a hint, and the turn continues.
#[test]
fn no_more_threads_for_a_tool() {
    let place = Place::new();
    let ready = place.work().join("ready");
    let fault = Fault::new(&place, &format!("thread * EAGAIN when={}", ready.display()));
    let script = "replies: [{calls: [{tool: shell, arguments: {command: touch ready}}]}, {calls: [{tool: list, arguments: {}}]}, {text: Hello.}]";
    let run = place.run_script(script).args("--stream-json hello");
    let ended = fault.below(run).end().ok();
    let lines = ended.lines();
    let list =
        |line: &&serde_json::Value| line["event"] == "tool_finished" && line["name"] == "list";
    let list = lines.iter().find(list).expect("it ended");
    assert_eq!(list["outcome"], "failed", "{list:#}");
    let content = list["content"].as_str().expect("text");
    assert!(content.contains("ulimit -u"), "{content}");
    assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
}

#[test]
fn no_more_descriptors() {
    for limit in (6..64).step_by(3) {
        let place = Place::new();
        let run = place.run_script(SCRIPT).args("--json hello");
        let limited = run.by_shell(&format!("ulimit -n {limit}"));
        let ended = limited.start().end(FACT_MAX);
        check(limit, &place, &ended);
    }
}

/// Checks that the error of the start names the missing resource and the remedy. The error of the part that fails first
/// would be misleading: it would name the script, the store, or a bug.
#[track_caller]
fn check_remedy(given: impl std::fmt::Debug, ended: &Ended, remedy: &str) {
    let envelope = ended.envelope();
    let error = &envelope["error"];
    let says = |field: &str, text: &str| error[field].as_str().is_some_and(|it| it.contains(text));
    assert_eq!(ended.code, 1, "{given:?}: {ended:#?}");
    assert_eq!(error["kind"], "system", "{given:?}: {error:#}");
    assert!(says("message", "to start"), "{given:?}: {error:#}");
    assert!(says("hint", remedy), "{given:?}: {error:#}");
}

#[test]
fn too_few_descriptors_to_start_are_named_with_the_remedy() {
    for limit in [6, 9, 15, 20, 23] {
        let place = Place::new();
        let run = place.run_script(SCRIPT).args("--json hello");
        let limited = run.by_shell(&format!("ulimit -n {limit}"));
        let ended = limited.start().end(FACT_MAX);
        check_remedy(limit, &ended, "ulimit -n");
    }
}

#[test]
fn too_few_threads_to_start_are_named_with_the_remedy() {
    for after in [0, 5, 8, 9, 10] {
        let place = Place::new();
        let fault = Fault::new(&place, &format!("thread * EAGAIN skip={after}"));
        let run = fault.below(place.run_script(SCRIPT).args("--json hello"));
        check_remedy(after, &run.end(), "ulimit -u");
    }
}

/// A write beyond the file size limit fails like a write to a full disk.
#[test]
fn no_larger_files() {
    for limit in [0, 10, 40] {
        let place = Place::new();
        let run = place.run_script(SCRIPT).args("--json hello");
        let ended = run.by_shell(&format!("ulimit -f {limit}")).end();
        place.assert_nothing_runs();
        assert_eq!(ended.code, 1, "{limit}: {ended:#?}");
        let envelope = ended.envelope();
        assert_eq!(envelope["error"]["kind"], "store", "{limit}: {envelope:#}");
    }
}

/// For commands of the model, the file size limit works as usual: it kills a command that writes too much.
#[test]
fn the_limit_of_files_is_not_lifted_for_commands() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'head -c 1000000 /dev/zero > large; test $? = 153 && touch killed'}}]}, {text: Hello.}]";
    let run = place.run_script(script).arg("hello");
    run.by_shell("ulimit -f 400").end().ok();
    assert!(place.work().join("killed").exists());
}
