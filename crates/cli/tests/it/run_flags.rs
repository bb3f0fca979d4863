//! Flags of `run` for scripts: `--quiet`, `--fail-on-denied`, `--wait-session`, `-C`, environment variables of flags, and
//! the turns in the envelope.

use std::fs;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::{Allstop, FACT_MAX, Place, eventually};

const HELLO: &str = "replies: [{text: Hello.}]";

/// Script with a call that needs a permission.
const CALLS: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: touch made}}]}, {text: Well.}]";

const SLEEPS: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: touch ready; sleep 600}}]}]";

fn wait_ready(place: &Place) {
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
}

fn unasked<'a>(place: &'a Place, script: &str) -> Allstop<'a> {
    place.run_unasked().arg("--model").arg(place.script(script))
}

/// Regression: a run without messages wrote an empty line to standard error, so cron sent a message with it.
#[test]
fn a_completed_run_writes_nothing_to_standard_error() {
    let place = Place::new();
    let ended = place.run_script(HELLO).arg("hello").end().ok();
    assert_eq!((&*ended.stdout, &*ended.stderr), ("Hello.\n", ""));
}

#[test]
fn quiet_run_writes_only_errors_to_standard_error() {
    let place = Place::new();
    // Without the flag, the call, the denial and the hint have lines.
    let loud = unasked(&place, CALLS).arg("hello").end().ok();
    assert!(loud.stderr.contains("denied: shell"), "{loud:#?}");
    for flag in ["--quiet", "-q"] {
        let ended = unasked(&place, CALLS).arg(flag).arg("hello").end().ok();
        assert_eq!((&*ended.stdout, &*ended.stderr), ("Well.\n", ""), "{flag}");
    }
    let run = place.run_script(CALLS).args("--quiet hello").end().ok();
    assert_eq!((&*run.stdout, &*run.stderr), ("Well.\n", ""));

    let place = Place::new();
    let failed = place.run_script(HELLO).args("-q hello --then again").end();
    assert_eq!(failed.code, 1, "{failed:#?}");
    assert!(failed.stderr.starts_with("error: "), "{failed:#?}");
    let late = place.run_script(SLEEPS).args("-q --timeout 300ms hello");
    let late = late.end();
    assert_eq!(late.code, 124, "{late:#?}");
    assert_eq!(late.stderr.lines().count(), 1, "{late:#?}");
    assert!(late.stderr.contains("run deadline of 300ms"), "{late:#?}");
}

/// Regression: the envelope had only the answer of the last turn.
#[test]
fn envelope_has_each_turn_with_its_answer_usage_and_receipt() {
    let place = Place::new();
    let script = "replies: [{text: One., usage: {input_tokens: 10, output_tokens: 1}}, \
        {text: Two., usage: {input_tokens: 20, output_tokens: 2}}, {text: Never., stall: first_token}]";
    let run = place.run_script(script).args("--json --timeout 2s");
    let ended = run.prompts(&["one", "two", "three"]).end();
    assert_eq!(ended.code, 124, "{ended:#?}");
    let envelope = ended.envelope();
    let turns = envelope["turns"].as_array().expect("turns");
    let of = |key: &str| turns.iter().map(|turn| &turn[key]).collect::<Vec<_>>();
    assert_eq!(of("output"), ["One.", "Two.", ""]);
    assert_eq!(of("stop_reason"), ["completed", "completed", "timeout"]);
    assert_eq!(turns[1]["usage"]["input_tokens"], 20, "{envelope:#}");
    assert_eq!(turns[0]["receipt"], Value::Null);
    assert_eq!(turns[2]["receipt"], envelope["receipt"]);
}

#[test]
fn denied_calls_fail_a_run_that_asks_for_it() {
    let place = Place::new();
    unasked(&place, CALLS).arg("hello").end().ok();
    for (args, code) in [
        ("--json --fail-on-denied", 8),
        ("--json --yes --fail-on-denied", 0),
    ] {
        let ended = unasked(&place, CALLS).args(args).arg("hello").end();
        assert_eq!(ended.code, code, "{ended:#?}");
        assert_eq!(ended.envelope()["stop_reason"], "completed");
    }
    let quiet = unasked(&place, CALLS).args("-q --fail-on-denied hello");
    let quiet = quiet.end();
    assert_eq!(quiet.code, 8, "{quiet:#?}");
    assert!(quiet.stderr.contains("denied: shell"), "{quiet:#?}");
}

/// Regression: the list of denials left out the calls of sub-agents, so such a run exited with 0.
#[test]
fn denied_calls_of_sub_agents_are_listed_and_fail_a_run() {
    for (background, path) in [(false, "call_a/call_inner"), (true, "bg_1/call_inner")] {
        let place = Place::new();
        let server = OpenAiServer::deciding(move |_, request| {
            let is_sub_agent = request.body.to_string().contains("Another agent gave you");
            let mut messages = request.messages().iter();
            let has_result = messages.any(|message| message["role"] == "tool");
            match (is_sub_agent, !has_result) {
                (true, true) => {
                    let command = json!({"command": "touch made"}).to_string();
                    ServerAnswer::stream().tool_call("call_inner", "shell", &command)
                }
                (false, true) => {
                    let task = json!({"prompt": "make it", "background": background}).to_string();
                    ServerAnswer::stream().tool_call("call_a", "agent", &task)
                }
                _ => ServerAnswer::text("Well."),
            }
        });
        let run = place.run_unasked().args("--model any --base-url");
        let run = run
            .arg(server.url())
            .args("--json --fail-on-denied --wait-background go");
        let ended = run.end();
        assert_eq!(ended.code, 8, "background: {background}, {ended:#?}");
        let denial = &ended.envelope()["denials"][0];
        assert_eq!(denial["tool"], "shell", "{ended:#?}");
        assert_eq!(denial["call_id"], path, "{ended:#?}");
    }
}

#[test]
fn session_of_another_process_is_busy_until_it_is_released() {
    let place = Place::new();
    let running = place.run_script(SLEEPS).arg("go").start();
    wait_ready(&place);
    let id = place.only_session();
    let again = |wait: &str| {
        let run = place.run_script(HELLO).args("--json --session").arg(&id);
        run.args(wait).arg("hello")
    };
    for wait in ["", "--wait-session 200ms"] {
        let refused = again(wait).end();
        assert_eq!(refused.code, 1, "{refused:#?}");
        assert_eq!(refused.envelope()["error"]["kind"], "busy", "{refused:#?}");
    }
    let late = again("--wait-session 10m --timeout 500ms").end();
    assert_eq!(late.code, 124, "{late:#?}");
    assert_eq!(late.envelope()["error"]["kind"], "busy", "{late:#?}");
    let waiting = again("--wait-session 10m").start();
    // The waiting process is in the list of processes before it opens the session.
    eventually("the waiting run", || {
        let listed = place.allstop().args("ps").end().ok();
        listed.stdout.contains("starts").then_some(())
    });
    let stop = place.allstop().args("stop --reason").arg("make room");
    stop.arg(&id).arg("--store").arg(place.store()).end().ok();
    assert_eq!(running.end(FACT_MAX).code, 130);
    let ended = waiting.end(FACT_MAX).ok();
    assert_eq!(ended.envelope()["output"], "Hello.");
}

/// The reason of a stop is in its receipt, for open sessions and for ended ones.
#[test]
fn receipt_has_the_reason_of_the_stop() {
    let place = Place::new();
    let running = place.run_script(SLEEPS).args("--json go").start();
    wait_ready(&place);
    let stop = || {
        let stop = place.allstop().args("stop last --json --reason");
        let stop = stop.arg("wrong branch").arg("--store");
        let stopped = stop.arg(place.store()).end().ok();
        let line: Value = serde_json::from_str(&stopped.stdout).expect("JSON");
        line["receipt"]["cause"]["detail"].clone()
    };
    assert_eq!(stop(), "wrong branch");
    let envelope = running.end(FACT_MAX).envelope();
    assert_eq!(envelope["cause"]["detail"], "wrong branch", "{envelope:#}");
    assert_eq!(stop(), "wrong branch");
}

#[test]
fn command_changes_to_its_folder_first() {
    let place = Place::new();
    let below = place.work().join("below");
    fs::create_dir(&below).expect("a folder");
    fs::write(below.join("replies.yaml"), CALLS).expect("a script");
    for args in [
        &["-C", "below", "run", "--yes", "--model"][..],
        &["run", "--yes", "-C", "below", "--model"],
        &["-Cbelow", "say hello", "--yes", "--model"],
    ] {
        let mut run = place.allstop().env("ALLSTOP_STORE", place.store());
        for arg in args {
            run = run.arg(arg);
        }
        run = run.arg("script:replies.yaml");
        if args.contains(&"run") {
            run = run.arg("hello");
        }
        let ended = run.end().ok();
        assert_eq!(ended.stdout, "Well.\n", "{ended:#?}");
        fs::remove_file(below.join("made")).expect("the call ran in the folder");
    }
    let ended = place.allstop().args("-C nowhere ps").end();
    assert_eq!(ended.code, 2, "{ended:#?}");
    let said = "error: cannot change to the folder `nowhere`: No such file";
    assert!(ended.stderr.starts_with(said), "{ended:#?}");
}

/// Each flag has a variable. A flag on the command line overrides it, also if the two exclude each other.
#[test]
fn variables_set_the_flags_of_a_run() {
    let place = Place::new();
    let run = || place.run_script(HELLO);
    let json = run().env("ALLSTOP_JSON", "1").arg("hello").end().ok();
    assert_eq!(json.envelope()["output"], "Hello.");
    let stream = run().env("ALLSTOP_JSON", "1").args("--stream-json hello");
    assert!(stream.end().ok().lines().len() > 1);
    let off = run().env("ALLSTOP_JSON", "0").env("ALLSTOP_TIMEOUT", "");
    assert_eq!(off.arg("hello").end().ok().stdout, "Hello.\n");
    let wrong = run().env("ALLSTOP_QUIET", "maybe").arg("hello").end();
    assert_eq!(wrong.code, 2, "{wrong:#?}");
    assert!(wrong.stderr.contains("expected 1, true"), "{wrong:#?}");

    let late = place.run_script(SLEEPS).env("ALLSTOP_TIMEOUT", "0.3s");
    let late = late.env("ALLSTOP_QUIET", "yes").arg("hello").end();
    assert_eq!(late.code, 124, "{late:#?}");
    let denies = unasked(&place, CALLS).env("ALLSTOP_DENY", "1");
    let failing = denies.env("ALLSTOP_FAIL_ON_DENIED", "1");
    assert_eq!(failing.arg("hello").end().code, 8);
    let allows = unasked(&place, CALLS).env("ALLSTOP_DENY", "1");
    allows.args("--yes hello").end().ok();
    assert!(
        place.work().join("made").exists(),
        "the flag has precedence"
    );

    // A run within a command of the model must not get the flags of this run.
    let shows = "replies: [{calls: [{tool: shell, arguments: {command: 'echo [$ALLSTOP_YES] > seen'}}]}, {text: Well.}]";
    let run = unasked(&place, shows).env("ALLSTOP_YES", "1").arg("hello");
    run.end().ok();
    let seen = fs::read_to_string(place.work().join("seen")).expect("the call ran");
    assert_eq!(seen, "[]\n");

    let help = place.allstop().args("run --help").end().ok();
    for name in ["ALLSTOP_TIMEOUT", "ALLSTOP_RECEIPT_FILE", "ALLSTOP_YES"] {
        assert!(help.stdout.contains(&format!("[env: {name}]")), "{name}");
    }
}

#[test]
fn durations_have_fractions_and_several_parts() {
    let place = Place::new();
    for (time, code) in [("1m30s", 0), ("1.5s", 0), ("1.5", 2), ("30s1m", 2)] {
        let run = place.run_script(HELLO).arg("--timeout").arg(time);
        let ended = run.arg("hello").end();
        assert_eq!(ended.code, code, "{time}: {ended:#?}");
    }
}
