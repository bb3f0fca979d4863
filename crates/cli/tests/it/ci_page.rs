//! The job in docs/ci.md, run literally.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use serde_json::Value;

use crate::support::command::COMMAND;
use crate::support::place::repository;
use crate::support::schema::assert_valid;
use crate::support::{Allstop, Ended, Place};

/// Time limit that the page promises.
const JOB_MAX: Duration = Duration::from_mins(1);

/// The script of the page.
fn job() -> String {
    let page = fs::read_to_string(repository().join("docs/ci.md")).expect("the page");
    let (_, rest) = page.split_once("```sh\n").expect("a script");
    let (script, _) = rest.split_once("\n```\n").expect("its end");
    script.to_owned()
}

/// A place in which `allstop` is found in the PATH. `program` makes the file with this name.
fn place_with(program: impl FnOnce(&std::path::Path)) -> Place {
    let place = Place::new();
    let folder = place.path("bin");
    fs::create_dir(&folder).expect("a folder");
    program(&folder.join("allstop"));
    place
}

/// Runs the job with this model.
fn run<'a>(
    place: &'a Place,
    script: &str,
    change: impl FnOnce(Allstop<'a>) -> Allstop<'a>,
) -> Ended {
    #[expect(
        clippy::disallowed_methods,
        reason = "the job finds its programs by it"
    )]
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", place.path("bin").display());
    let job = place.allstop().by_script(&job()).env("PATH", path);
    let job = job.env("ALLSTOP_MODEL", place.script(script));
    change(job).start().end(JOB_MAX)
}

fn file(place: &Place, name: &str) -> String {
    fs::read_to_string(place.work().join(name)).unwrap_or_default()
}

fn link(to: &std::path::Path) {
    symlink(COMMAND, to).expect("a link");
}

#[test]
fn job_is_twenty_lines() {
    assert!(job().lines().count() <= 20, "{}", job());
}

#[test]
fn job_of_a_completed_run() {
    let place = place_with(link);
    // A runner may leave standard input open. The job must not wait for its end.
    let (stdin, _open) = std::io::pipe().expect("a pipe");
    let script = "replies: [{text: \"Hello <&> there.\"}]";
    let ended = run(&place, script, |job| job.stdin(stdin)).ok();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""));
    let transcript = file(&place, "run.jsonl");
    assert!(transcript.lines().count() > 2, "{transcript}");
    for line in transcript.lines() {
        assert_valid("events", &serde_json::from_str(line).expect("JSON"));
    }
    assert!(!place.work().join("receipt.json").exists());
    let summary = file(&place, "summary.md");
    assert!(
        summary.starts_with("## Agent: completed, exit code 0\n"),
        "{summary}"
    );
    assert!(summary.contains("Hello <&> there."), "{summary}");
    let junit =
        "<testsuite name=\"allstop\" tests=\"1\"><testcase name=\"run\"></testcase></testsuite>\n";
    assert_eq!(file(&place, "junit.xml"), junit);
}

#[test]
fn job_of_a_run_that_takes_too_long() {
    let place = place_with(link);
    let script =
        "replies: [{calls: [{tool: shell, arguments: {command: \"trap '' TERM; sleep 600\"}}]}]";
    let ended = run(&place, script, |job| job.env("ALLSTOP_TIMEOUT", "500ms"));
    assert_eq!(ended.code, 124, "{ended:#?}");
    let receipt: Value = serde_json::from_str(&file(&place, "receipt.json")).expect("JSON");
    assert_valid("receipt", &receipt);
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    let summary = file(&place, "summary.md");
    assert!(
        summary.contains("## Agent: timeout, exit code 124"),
        "{summary}"
    );
    assert!(summary.contains("```json\n{"), "{summary}");
    let junit = file(&place, "junit.xml");
    assert!(
        junit.contains("<failure message=\"timeout, exit code 124"),
        "{junit}"
    );
    place.assert_nothing_runs();
}

#[test]
fn job_of_a_run_that_fails_or_is_denied() {
    let place = place_with(link);
    let failed = run(&place, "replies: [{text: One.", |job| job);
    assert_eq!(failed.code, 2, "{failed:#?}");
    let summary = file(&place, "summary.md");
    assert!(
        summary.starts_with("## Agent: error, exit code 2\n"),
        "{summary}"
    );
    let junit = file(&place, "junit.xml");
    assert!(
        junit.contains("<failure message=\"error, exit code 2: "),
        "{junit}"
    );

    let rule = place.file("rule.toml", "[permissions]\ndeny = [\"shell\"]\n");
    let script = "replies: [{calls: [{tool: shell, arguments: {command: echo}}]}, {text: Well.}]";
    let denied = run(&place, script, |job| job.env("ALLSTOP_CONFIG", &rule));
    assert_eq!(denied.code, 8, "{denied:#?}");
    let summary = file(&place, "summary.md");
    assert!(summary.contains("1 denied calls"), "{summary}");
}

/// The process ignores every signal except SIGKILL, and writes nothing.
#[test]
fn job_of_a_process_that_hangs() {
    let place = place_with(|program| {
        fs::write(program, "#!/bin/sh\ntrap '' TERM\nsleep 600 & wait; wait\n").expect("a script");
        fs::set_permissions(program, Permissions::from_mode(0o755)).expect("a mode");
    });
    let ended = run(&place, "replies: []", |job| job.env("JOB_SECONDS", "1"));
    assert_eq!(ended.code, 137, "{ended:#?}");
    let summary = file(&place, "summary.md");
    assert!(
        summary.starts_with("## Agent: killed, exit code 137\n"),
        "{summary}"
    );
    let junit = file(&place, "junit.xml");
    assert!(
        junit.contains("<failure message=\"killed, exit code 137"),
        "{junit}"
    );
}
