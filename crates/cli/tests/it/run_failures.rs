//! Failures that a script must notice: an old receipt, a lost result, a missing `/proc`, a reader that is gone.

use std::fs;
use std::io::Read as _;

use serde_json::Value;

use crate::support::{FACT_MAX, Place, eventually};

const HELLO: &str = "replies: [{text: Hello.}]";
const SLEEPS: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: touch ready; sleep 600}}]}]";

/// Beginning of a file with the receipt of an earlier run.
const EARLIER: &str = "{\n  \"schema\": \"allstop.receipt/1\",";

/// Regression: the file still had the receipt of the run before, and a script took it for the receipt of this run.
#[test]
fn no_error_leaves_an_earlier_receipt() {
    let place = Place::new();
    let file = place.path("receipt.json");
    for args in [
        "--no-such-flag --receipt-file FILE",
        "--receipt-file=FILE --timeout never",
        "--receipt-file FILE --output nowhere/out",
        "--receipt-file FILE --session none",
        "-C nowhere --receipt-file FILE",
        "--receipt-file FILE --model script:none.yaml",
    ] {
        fs::write(&file, EARLIER).expect("a file");
        let args = args.replace("FILE", &file.display().to_string());
        let ended = place.run_script(HELLO).args(&args).arg("hello").end();
        assert_eq!(ended.code, 2, "{args}: {ended:#?}");
        assert!(!file.exists(), "{args}");
    }
    // The variable of the flag works too, and another file stays.
    fs::write(&file, EARLIER).expect("a file");
    let run = place.run_script(HELLO).env("ALLSTOP_RECEIPT_FILE", &file);
    assert_eq!(run.args("--no-such-flag hello").end().code, 2);
    assert!(!file.exists());
    fs::write(&file, "mine").expect("a file");
    let run = place.run_script(HELLO).arg("--receipt-file").arg(&file);
    assert_eq!(run.args("--no-such-flag hello").end().code, 2);
    assert_eq!(fs::read_to_string(&file).expect("it stays"), "mine");
}

/// A receipt whose folder is not writable is emptied: it cannot be removed.
#[test]
fn earlier_receipt_in_a_closed_folder_is_emptied() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let folder = place.path("closed");
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("receipt.json");
    fs::write(&file, EARLIER).expect("a file");
    let mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&file, 0o666).expect("a mode");
    mode(&folder, 0o555).expect("a mode");
    let run = place.run_script(HELLO).arg("--receipt-file").arg(&file);
    let ended = run.arg("hello").unprivileged().end();
    assert_eq!(ended.code, 2, "{ended:#?}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), "");
}

/// Regression: the run exited with 0, and no program had its result.
#[test]
fn a_result_that_nothing_can_receive_is_an_error() {
    let place = Place::new();
    for args in ["--json hello", "--stream-json hello", "hello"] {
        let ended = place.run_script(HELLO).args(args).redirected(">&-").end();
        assert_eq!(ended.code, 1, "{args}: {ended:#?}");
        let said = "error: standard output is closed, so the result is lost";
        assert!(ended.stderr.contains(said), "{args}: {ended:#?}");
    }
    let listed = place.allstop().args("ps --json").redirected(">&-").end();
    assert_eq!(listed.code, 1, "{listed:#?}");
    // The user discards the result on purpose, or names a file.
    let discarded = place.run_script(HELLO).args("--json hello");
    discarded.redirected("> /dev/null").end().ok();
    let run = place.run_script(HELLO).args("--json --output out hello");
    run.redirected(">&-").end().ok();
    let written = fs::read_to_string(place.work().join("out")).expect("a result");
    assert!(written.contains("Hello."), "{written}");
}

/// Regression: each call failed, the run exited with 0, and `doctor` named `/bin/sh`.
#[test]
fn missing_proc_is_named() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can cover /proc");
        return;
    }
    let place = Place::new();
    let without_proc = |run: crate::support::Allstop<'_>| {
        let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
        run.by_script(script).by("unshare -m").end()
    };
    let said = "/proc is not mounted";
    let ended = without_proc(place.run_script(SLEEPS).args("--json hello"));
    assert_eq!(ended.code, 1, "{ended:#?}");
    let envelope = ended.envelope();
    assert_eq!(envelope["error"]["kind"], "system", "{envelope:#}");
    let message = envelope["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(said), "{envelope:#}");
    let doctor = place.allstop().args("doctor --json --store");
    let doctor = without_proc(doctor.arg(place.store()));
    assert_eq!(doctor.code, 1, "{doctor:#?}");
    let report: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let mut checks = report["checks"].as_array().expect("checks").iter();
    let stopping = checks.find(|check| check["name"] == "stopping");
    let message = stopping.expect("a check")["message"].to_string();
    assert!(message.contains(said), "{report:#}");
}

/// The stream of `ps --watch` ends with its reader. The session continues.
#[test]
fn a_watch_without_a_reader_ends() {
    let place = Place::new();
    let running = place.run_script(SLEEPS).arg("hello").start();
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
    for args in ["ps --watch --json", "watch last --json"] {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let watch = place.allstop().args(args);
        let watching = watch.stdout(std::process::Stdio::from(writer)).start();
        let mut first = [0; 1];
        reader.read_exact(&mut first).expect("an object");
        drop(reader);
        assert_eq!(watching.end(FACT_MAX).code, 141, "{args}");
    }
    assert_eq!(running.end_by(crate::support::Signal::INT).code, 130);
}

/// Regression: without a reader the run continued until its deadline.
#[test]
fn a_stream_without_a_reader_stops_the_run() {
    let place = Place::new();
    let file = place.path("receipt.json");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let run = place.run_script(SLEEPS).args("--stream-json --timeout 5m");
    let run = run.arg("--receipt-file").arg(&file).arg("hello");
    let running = run.stdout(std::process::Stdio::from(writer)).start();
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
    let mut first = [0; 1];
    reader.read_exact(&mut first).expect("an event");
    drop(reader);
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 141, "{ended:#?}");
    let receipt = fs::read_to_string(&file).expect("a receipt");
    let receipt: Value = serde_json::from_str(&receipt).expect("JSON");
    assert_eq!(receipt["cause"]["kind"], "disconnect", "{receipt:#}");
    assert_eq!(receipt["quiet"], true, "{receipt:#}");
    place.assert_nothing_runs();
}
