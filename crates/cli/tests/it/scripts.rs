//! Guarantees for scripts that run Allstop: output and receipts in files, exit codes of commands, output of calls.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::support::fault::Fault;
use crate::support::schema::assert_valid;
use crate::support::{FACT_MAX, Place, Signal, eventually};

const HELLO: &str = "replies: [{text: Hello.}]";

/// Script with a call of a shell command that runs until it is stopped. The command ends on SIGTERM.
const SLEEPS: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: touch ready; sleep 600}}]}]";

/// Like [`SLEEPS`], but the command ignores SIGTERM.
const STUBBORN: &str = "replies: [{calls: [{tool: shell, arguments: \
     {command: \"trap '' TERM; touch ready; sleep 600 & wait; sleep 600\"}}]}]";

fn calls(commands: &[&str]) -> String {
    let call = |command: &&str| format!("{{tool: shell, arguments: {{{command}}}}}");
    let calls: Vec<String> = commands.iter().map(call).collect();
    format!(
        "replies: [{{calls: [{}]}}, {{text: Done.}}]",
        calls.join(", ")
    )
}

/// Beginning of a file with the receipt of an earlier run.
const EARLIER: &str = "{\n  \"schema\": \"allstop.receipt/1\",";

fn pipe(place: &Place) -> String {
    let path = place.path("pipe");
    let made = Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&path)
        .status();
    assert!(made.expect("mkfifo").success());
    path.display().to_string()
}

fn wait_ready(place: &Place) {
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
}

#[track_caller]
fn receipt_in(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a receipt file");
    assert!(text.ends_with('\n'), "{text}");
    let receipt = serde_json::from_str(&text).expect("JSON");
    assert_valid("receipt", &receipt);
    receipt
}

/// Names of temporary files that were left in a folder.
fn strays(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".tmp")).collect()
}

/// Regression: a help text that could not be written ended with exit code 0.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    for command in ["--help", "run --help", "--version"] {
        let full = fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("it exists");
        let ended = place.allstop().args(command).stdout(full).end();
        assert_eq!(ended.code, 1, "{command}: {ended:#?}");
        assert!(ended.stderr.contains("cannot be written"), "{ended:#?}");
    }
}

#[test]
fn each_end_of_a_command_has_its_exit_code_and_outcome() {
    let place = Place::new();
    let script = calls(&[
        "command: 'true'",
        "command: exit 3",
        "command: kill -9 $$",
        "command: sleep 600, timeout_s: 0.2",
    ]);
    let ended = place.run_script(&script).args("--stream-json go").end();
    let lines = ended.ok().lines();
    for (call, outcome, code) in [
        ("call_1_1", "succeeded", Some(0)),
        ("call_1_2", "succeeded", Some(3)),
        ("call_1_3", "succeeded", Some(137)),
        ("call_1_4", "timed_out", None),
    ] {
        let mut finished = lines.iter().filter(|line| line["event"] == "tool_finished");
        let finished = finished.find(|line| line["call_id"] == call).expect(call);
        assert_eq!(finished["outcome"], outcome, "{finished:#}");
        assert_eq!(finished["exit_code"].as_i64(), code, "{finished:#}");
    }
}

#[test]
fn bytes_of_a_command_survive() {
    let place = Place::new();
    // The output contains a character with a pause between its bytes, and bytes that are not valid UTF-8.
    let script = calls(&[
        r#"command: "printf 'a\\303'; sleep 0.2; printf '\\251b'; sleep 0.2; printf '\\377\\000\\376'""#,
    ]);
    let ended = place.run_script(&script).args("--stream-json go").end();
    let lines = ended.ok().lines();
    let outputs = lines.iter().filter(|line| line["event"] == "tool_output");
    let (mut bytes, mut encoded) = (Vec::new(), Vec::new());
    for output in outputs {
        assert_eq!(output["missed_bytes"], 0, "{output:#}");
        match output["base64"].as_str() {
            Some(base64) => {
                bytes.extend(BASE64.decode(base64).expect("base64"));
                encoded.push(base64.to_owned());
            }
            None => bytes.extend(output["text"].as_str().expect("text").as_bytes()),
        }
    }
    assert_eq!(bytes, b"a\xc3\xa9b\xff\x00\xfe");
    assert_eq!(encoded, ["/wD+"]);
}

#[test]
fn output_goes_to_a_file_in_every_format() {
    for (args, holds) in [
        ("", "Hello.\n"),
        ("--json", "\"output\":\"Hello.\""),
        ("--stream-json", "\"event\":\"turn_started\""),
    ] {
        let place = Place::new();
        let file = place.file("out", "what was there before, and is longer than an answer");
        let run = place.run_script(HELLO).args(args).arg("--output");
        let ended = run.arg(&file).arg("hello").end().ok();
        assert_eq!(ended.stdout, "");
        let written = fs::read_to_string(&file).expect("the output");
        assert!(written.contains(holds), "{written}");
        assert!(!written.contains("before"), "{written}");
    }
}

#[test]
fn output_goes_to_a_pipe_that_has_a_reader() {
    let place = Place::new();
    let pipe = pipe(&place);
    let run = place.run_script(HELLO).arg("--output").arg(&pipe);
    let ended = run.arg("hello");
    let ended = ended
        .by_script(&format!("cat {pipe} & \"$0\" \"$@\"; wait"))
        .end();
    assert_eq!(ended.ok().stdout, "Hello.\n");
}

#[test]
fn unwritable_output_fails_before_the_run() {
    let place = Place::new();
    let closed = place.path("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, Permissions::from_mode(0o555)).expect("a mode");
    let pipe = pipe(&place);
    let in_closed = closed.join("out").display().to_string();
    for (path, hint) in [
        ("../home", "it is a folder"),
        ("nowhere/out", "name another file: --output FILE"),
        (&in_closed, "in a folder where you can write: --output FILE"),
        (&pipe, "start its reader first"),
    ] {
        let run = place.run_script(HELLO).args("--json --output").arg(path);
        let ended = run.arg("hello").unprivileged().end();
        assert_eq!(ended.code, 2, "{ended:#?}");
        let error: Value = serde_json::from_str(&ended.stdout).expect("an error object");
        assert_valid("error", &error);
        assert!(ended.stderr.contains(hint), "{ended:#?}");
    }
    assert!(!place.store().exists(), "a session was begun");
}

#[test]
fn output_on_a_full_disk_is_a_failure() {
    let place = Place::new();
    let run = place.run_script(HELLO).args("--output /dev/full hello");
    let ended = run.end();
    assert_eq!(ended.code, 1, "{ended:#?}");
    let said = "the output `/dev/full` cannot be written";
    assert!(ended.stderr.contains(said), "{ended:#?}");
}

#[test]
fn receipt_of_each_end_is_in_its_file() {
    for (script, args, signals, code) in [
        (SLEEPS, "", 1, 130),
        (STUBBORN, "--grace 10s", 2, 130),
        (STUBBORN, "--grace 300ms --json", 1, 130),
        (SLEEPS, "--timeout 1s --stream-json", 0, 124),
    ] {
        let place = Place::new();
        let file = place.file("receipt.json", EARLIER);
        let run = place.run_script(script).args(args).arg("--receipt-file");
        let mut running = run.arg(&file).arg("go").start();
        wait_ready(&place);
        assert!(!file.exists(), "of an earlier run");
        for signal in 0..signals {
            if signal > 0 {
                // Wait before the next signal, because two signals within a tenth of a second count as one.
                assert!(!running.ends_within(std::time::Duration::from_millis(150)));
            }
            running.signal(Signal::INT);
        }
        let ended = running.end(crate::support::FACT_MAX);
        assert_eq!(ended.code, code, "{ended:#?}");
        let receipt = receipt_in(&file);
        assert_eq!(receipt["quiet"], true, "{receipt:#}");
        let shown = place.allstop().args("receipt last --json --store");
        let shown = shown.arg(place.store()).end().ok();
        let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
        assert_eq!(receipt, shown, "the same document");
        assert_eq!(strays(&place.path("")), [""; 0]);
        place.assert_nothing_runs();
    }
}

#[test]
fn receipt_file_is_there_only_if_the_run_has_a_receipt() {
    let place = Place::new();
    let file = place.file("receipt.json", EARLIER);
    let run = place.run_script(HELLO).arg("--receipt-file").arg(&file);
    run.arg("hello").end().ok();
    assert!(!file.exists());
    // A run without a signal also has a receipt if its end stops background work.
    let script = calls(&["command: sleep 600, background: true"]);
    let run = place.run_script(&script).args("--json --receipt-file");
    let ended = run.arg(&file).arg("hello").end().ok();
    assert_eq!(receipt_in(&file), ended.envelope()["receipt"]);
}

/// Regression: if the run was stopped during the check of the receipt file, it wrote no receipt file, and printed no
/// message about the missing file.
#[test]
fn receipt_file_is_there_after_a_stop_during_its_check() {
    let place = Place::new();
    let file = place.file("receipt.json", EARLIER);
    let fault = Fault::new(&place, "open receipt.json 0ms");
    let run = place.run_script(HELLO).args("--json --receipt-file");
    let mut running = fault.below(run.arg(&file).arg("hello")).start();
    let is_hit = || (!fault.seen().is_empty()).then_some(());
    eventually("the check of the file", is_hit);
    running.signal(Signal::INT);
    fault.set("");
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{ended:#?}");
    assert_eq!(receipt_in(&file), ended.envelope()["receipt"]);
}

#[test]
fn unwritable_receipt_file_fails_before_the_run() {
    let place = Place::new();
    let closed = place.path("closed");
    fs::create_dir(&closed).expect("a folder");
    fs::set_permissions(&closed, Permissions::from_mode(0o555)).expect("a mode");
    let pipe = pipe(&place);
    let in_closed = closed.join("receipt").display().to_string();
    for (path, why) in [
        ("../home", "not a regular file"),
        (&pipe, "not a regular file"),
        ("/dev/full", "not a regular file"),
        ("nowhere/receipt", "the folder `nowhere` does not exist"),
        (&in_closed, "permission denied"),
    ] {
        let run = place.run_script(HELLO).arg("--receipt-file").arg(path);
        let ended = run.arg("hello").unprivileged().end();
        assert_eq!((ended.code, &*ended.stdout), (2, ""), "{ended:#?}");
        assert!(ended.stderr.contains(why), "{ended:#?}");
        assert!(ended.stderr.contains("--receipt-file FILE"), "{ended:#?}");
    }
    let both = place.path("both").display().to_string();
    let run = place
        .run_script(HELLO)
        .args(&format!("--output {both} --receipt-file {both}"));
    let ended = run.arg("hello").end();
    assert_eq!(ended.code, 2, "{ended:#?}");
    assert!(
        ended.stderr.contains("it is the output of this run"),
        "{ended:#?}"
    );
    assert!(!place.store().exists(), "a session was begun");
}

#[test]
fn lost_receipt_is_reported() {
    let place = Place::new();
    let folder = place.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("receipt.json");
    let run = place.run_script(SLEEPS).args("--json --receipt-file");
    let running = run.arg(&file).arg("go").start();
    wait_ready(&place);
    fs::remove_dir_all(&folder).expect("it is removed");
    let ended = running.end_by(Signal::INT);
    assert_eq!(ended.code, 130, "{ended:#?}");
    assert!(
        ended.stderr.contains("cannot write the receipt to "),
        "{ended:#?}"
    );
    assert_eq!(ended.envelope()["receipt"]["quiet"], true);
}

/// Regression: the receipt made a private file readable for all, and replaced a link whose target was missing.
#[test]
fn receipt_file_keeps_its_mode_and_its_link() {
    let place = Place::new();
    let (file, link) = (place.path("receipt.json"), place.path("link.json"));
    std::os::unix::fs::symlink("receipt.json", &link).expect("a link");
    for is_first in [true, false] {
        let run = place.run_script(SLEEPS).arg("--receipt-file").arg(&link);
        let running = run.arg("go").start();
        wait_ready(&place);
        assert_eq!(running.end_by(Signal::INT).code, 130);
        assert!(link.is_symlink());
        if is_first {
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the receipt");
            fs::remove_file(place.work().join("ready")).expect("the command has begun");
        }
    }
    let mode = fs::metadata(&file)
        .expect("the receipt")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Because of a mistyped name, `--receipt-file` may name another file, such as the script of the run. This file must
/// not be deleted.
#[test]
fn receipt_file_removes_nothing_but_receipts() {
    let place = Place::new();
    let script = place.file("keep.yaml", "replies: [{text: Hello.}]");
    let run = place.run().arg("--receipt-file").arg(&script);
    let run = run
        .arg("--model")
        .arg(format!("script:{}", script.display()));
    let ended = run.arg("hello").end();
    assert_eq!(ended.code, 2, "{ended:#?}");
    assert!(ended.stderr.contains("is not a receipt"), "{ended:#?}");
    let kept = std::fs::read_to_string(&script).expect("it is there");
    assert_eq!(kept, "replies: [{text: Hello.}]");
}

#[test]
fn exit_codes_of_receipt() {
    let place = Place::new();
    let receipt = |id: &str| {
        let receipt = place.allstop().args("receipt").arg(id);
        receipt.arg("--store").arg(place.store()).end()
    };
    place
        .run_script("replies: [{text: Hello.}]")
        .arg("hello")
        .end()
        .ok();
    let none = receipt("last");
    assert_eq!(none.code, 1, "{none:#?}");
    assert!(none.stderr.contains("has no receipt"), "{none:#?}");
    let not_found = receipt("no-such-session");
    assert_eq!(not_found.code, 2, "{not_found:#?}");
    let stalls = place.run_script("replies: [{text: Never., stall: first_token}]");
    let stopped = stalls.args("--timeout 300ms hello").end();
    assert_eq!(stopped.code, 124, "{stopped:#?}");
    let printed = receipt("last");
    assert_eq!(printed.code, 0, "{printed:#?}");
}

/// The store takes no record of the stop. Under `rollback` the conversation is unchanged in any case.
#[test]
fn stop_that_the_store_does_not_confirm_keeps_its_exit_code() {
    for (policy, effect, said) in [
        (
            "rollback",
            "unchanged",
            "the conversation is unchanged with or without it",
        ),
        (
            "keep",
            "unknown",
            "the store has not confirmed how the turn ended",
        ),
    ] {
        let place = Place::new();
        let ready = place.path("ready");
        let fault = Fault::new(
            &place,
            &format!("sync store.db hang when={}", ready.display()),
        );
        let command = format!("command: 'touch {}; sleep 600'", ready.display());
        let script = calls(&[&command]);
        let run = place
            .run_script(&script)
            .args("--json --grace 300ms --on-stop")
            .arg(policy);
        let running = fault.below(run.arg("hello")).start();
        eventually("the call", || ready.exists().then_some(()));
        let ended = running.end_by(Signal::INT);
        assert_eq!(ended.code, 130, "{policy}: {ended:#?}");
        let envelope = ended.envelope();
        assert_eq!(
            envelope["stop_reason"], "cancelled",
            "{policy}: {envelope:#}"
        );
        assert_eq!(envelope["error"]["kind"], "store", "{policy}: {envelope:#}");
        let message = envelope["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(said), "{policy}: {envelope:#}");
        assert_eq!(
            envelope["receipt"]["conversation"], effect,
            "{policy}: {envelope:#}"
        );
        let hint = envelope["error"]["hint"].as_str().unwrap_or_default();
        let store = place.store();
        let command = format!("allstop sessions show last --store {}", store.display());
        assert!(hint.contains(&command), "{policy}: {envelope:#}");
    }
}
