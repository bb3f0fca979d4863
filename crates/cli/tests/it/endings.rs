//! Every way in which a run can end without a stop by the user. The tests check the exit code, the envelope (the JSON
//! object with the result) and the events. The JSON must be valid under the published schemas.

use serde_json::Value;

use crate::support::{Allstop, Ended, Place};

const LISTS: &str = "{calls: [{tool: list, arguments: {}}]}";

/// Runs the command with `--stream-json`. Returns the envelope, and the result of the process.
#[track_caller]
fn ends(run: Allstop<'_>, code: i32, reason: &str) -> (Value, Ended) {
    let ended = run.args("--stream-json hello").end();
    let mut lines = ended.lines();
    let envelope = lines.pop().expect("an envelope");
    super::support::schema::assert_valid("envelope", &envelope);
    assert_eq!(ended.code, code, "{ended:#?}");
    assert_eq!(envelope["exit_code"], code, "{ended:#?}");
    assert_eq!(envelope["stop_reason"], reason, "{ended:#?}");
    if let Some(event) = lines.last() {
        assert_eq!(event["event"], "turn_ended", "{ended:#?}");
        assert_eq!(event["stop_reason"], reason, "{ended:#?}");
    }
    (envelope, ended)
}

#[test]
fn completed() {
    let place = Place::new();
    let script = format!("replies: [{LISTS}, {{reasoning: Hm., text: Hello.}}]");
    let (envelope, ended) = ends(place.run_script(&script), 0, "completed");
    assert_eq!(envelope["output"], "Hello.");
    let events: Vec<Value> = ended
        .lines()
        .into_iter()
        .map(|line| line["event"].clone())
        .collect();
    for event in [
        "turn_started",
        "step_started",
        "tool_requested",
        "tool_started",
        "tool_finished",
        "reasoning_delta",
        "text_delta",
        "step_answered",
    ] {
        assert!(events.contains(&event.into()), "no {event} in {events:?}");
    }
}

#[test]
fn an_error() {
    let place = Place::new();
    let script = "replies: [{error: {status: 401}}]";
    let (envelope, _) = ends(place.run_script(script), 1, "error");
    assert_eq!(envelope["error"]["kind"], "unauthorized", "{envelope:#}");
}

#[test]
fn the_limit_of_steps() {
    let place = Place::new();
    let script = format!("replies: [{LISTS}, {LISTS}, {{text: Hello.}}]");
    let run = place.run_script(&script).args("--max-steps 2");
    let (envelope, _) = ends(run, 3, "max_steps_reached");
    assert_eq!(envelope["steps"], 2, "{envelope:#}");
}

#[test]
fn the_limit_of_turns() {
    let place = Place::new();
    let script = "replies: [{text: one}, {text: two}, {text: three}]";
    let run = place
        .run_script(script)
        .args("--max-turns 2 --then two --then three");
    ends(run, 4, "max_turns_reached");
}

/// Each turn takes less time than the limit of `--timeout`, but all turns together take more.
#[test]
fn the_timeout_of_all_turns() {
    let place = Place::new();
    let script = "replies: [{text: one, delay: 300ms}, {text: two, delay: 300ms}, {text: three, delay: 300ms}]";
    let run = place
        .run_script(script)
        .args("--timeout 600ms --then two --then three");
    let ended = run.args("--json one").end();
    assert_eq!(ended.code, 124, "{ended:#?}");
    let envelope = ended.envelope();
    assert_eq!(envelope["stop_reason"], "timeout", "{envelope:#}");
}

/// Regression: the run stopped the turn a second time, and its envelope had the empty receipt of that stop.
#[test]
fn deadlines_in_the_configuration_have_one_receipt_with_the_work() {
    let calls =
        r#"replies: [{calls: [{tool: shell, arguments: {command: "trap '' TERM; sleep 30"}}]}]"#;
    for (limit, script, kind) in [
        (
            "turn",
            "replies: [{text: hello there, stall: mid_stream}]",
            "model_call",
        ),
        ("step", calls, "tool_call"),
        ("inactivity", calls, "tool_call"),
    ] {
        let place = Place::new();
        let config = place.file(
            "allstop.toml",
            format!("[deadlines]\n{limit} = \"300ms\"\n"),
        );
        let run = place.run_script(script).args("--grace 100ms --config");
        let (envelope, _) = ends(run.arg(config), 124, "timeout");
        let receipts = envelope["receipts"].as_array().expect("receipts");
        assert_eq!(receipts.len(), 1, "{envelope:#}");
        assert_eq!(receipts[0]["items"][0]["kind"], kind, "{envelope:#}");
        assert_eq!(envelope["turns"][0]["receipt"], envelope["receipt"]);
        place.assert_nothing_runs();
    }
}

#[test]
fn the_budget() {
    let place = Place::new();
    let script = format!("replies: [{LISTS}, {{text: Hello.}}]");
    let run = place.run_script(&script).args("--max-budget-tokens 10");
    ends(run, 5, "max_budget_reached");
}

#[test]
fn a_guardrail() {
    let place = Place::new();
    for stage in ["input", "output"] {
        let config =
            format!("[[guardrails]]\non = \"{stage}\"\ncommand = \"echo not here; exit 1\"\n");
        let config = place.file("allstop.toml", config);
        let run = place
            .run_script("replies: [{text: Hello.}]")
            .arg("--config")
            .arg(config);
        let (envelope, ended) = ends(run, 6, "guardrail");
        assert_eq!(envelope["output"], "", "{envelope:#}");
        let detail = envelope["cause"]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("not here"), "{ended:#?}");
    }
}

#[test]
fn a_loop() {
    let place = Place::new();
    let script = format!("replies: [{}]", [LISTS; 20].join(", "));
    ends(place.run_script(&script), 7, "loop_detected");
}

#[test]
fn a_denial_is_no_ending_and_is_listed() {
    let place = Place::new();
    let script =
        "replies: [{calls: [{tool: shell, arguments: {command: touch made}}]}, {text: Well.}]";
    let run = place.run_unasked().arg("--model").arg(place.script(script));
    let (envelope, _) = ends(run, 0, "completed");
    assert_eq!(envelope["denials"][0]["tool"], "shell", "{envelope:#}");
    assert!(!place.work().join("made").exists());
}

/// The hint about `--yes` appears only if a call was denied because no user could be asked.
#[test]
fn a_way_out_of_denials_is_hinted_at_where_it_is_one() {
    let place = Place::new();
    let script = place.script(
        "replies: [{calls: [{tool: shell, arguments: {command: touch made}}]}, {text: Well.}]",
    );
    let hook = "[[hooks]]\non = \"tool_start\"\ncommand = \"echo no tools today; exit 2\"\n";
    let hook = place.file("hook.toml", hook);
    let rule = place.file("rule.toml", "[permissions]\ndeny = [\"shell\"]\n");
    let run = || place.run_unasked().arg("--model").arg(&script).arg("hello");
    for (run, is_hinted) in [
        (run(), true),
        (run().arg("--deny"), false),
        (run().arg("--yes").arg("--config").arg(hook), false),
        (run().arg("--config").arg(rule), false),
    ] {
        let ended = run.end().ok();
        assert!(ended.stderr.contains("denied: shell"), "{ended:#?}");
        let hint = "hint: no terminal for questions: pass --yes";
        assert_eq!(ended.stderr.contains(hint), is_hinted, "{ended:#?}");
    }
}

#[test]
fn denying_hook_ends_the_call_and_not_the_turn() {
    let place = Place::new();
    let config = "[[hooks]]\non = \"tool_start\"\ncommand = \"echo no tools today; exit 2\"\n";
    let config = place.file("allstop.toml", config);
    let script = format!("replies: [{LISTS}, {{text: Well.}}]");
    let run = place.run_script(&script).arg("--config").arg(config);
    let (_, ended) = ends(run, 0, "completed");
    assert!(ended.stdout.contains("no tools today"), "{ended:#?}");
}

#[test]
fn malformed_arguments_are_an_error_for_the_model() {
    let place = Place::new();
    let script = "replies: [{calls: [{tool: shell, malformed_arguments: '{\"command\": \"touch made'}]}, {text: Well.}]";
    let (_, ended) = ends(place.run_script(script), 0, "completed");
    assert!(
        ended.stdout.contains("the arguments are not JSON"),
        "{ended:#?}"
    );
    assert!(!place.work().join("made").exists());
}

/// A run with one call. Its store is in the working directory, where the call may damage it.
fn beside_its_store<'a>(place: &'a Place, call: &str) -> Allstop<'a> {
    let script = format!("replies: [{{calls: [{call}]}}, {{text: Done.}}]");
    let run = place.allstop().args("run --yes --store store.db --model");
    run.arg(place.script(&script))
}

#[test]
fn a_store_that_was_moved_away_is_an_error() {
    for command in [
        "mv store.db x",
        "rm store.db-wal",
        "cp store.db x; mv x store.db",
    ] {
        let place = Place::new();
        let call = format!("{{tool: shell, arguments: {{command: {command}}}}}");
        let (envelope, _) = ends(beside_its_store(&place, &call), 1, "error");
        assert_eq!(
            envelope["error"]["kind"], "store",
            "{command}: {envelope:#}"
        );
    }
}

#[test]
fn a_store_is_out_of_reach_of_the_file_tools() {
    let place = Place::new();
    for file in ["store.db", "store.db.history"] {
        let call = format!("{{tool: write, arguments: {{path: {file}, content: gone}}}}");
        let (_, ended) = ends(beside_its_store(&place, &call), 0, "completed");
        let refused = ended.stdout.contains("belongs to Allstop");
        assert!(refused, "{file}: {ended:#?}");
    }
    let listed = place.allstop().args("sessions list --store store.db").end();
    // The store can still be read, and contains the turn.
    assert!(listed.stdout.contains("1 turn"), "{listed:#?}");
}

#[test]
fn a_yes_does_not_cover_what_a_rule_may_deny() {
    let place = Place::new();
    let config = "[permissions]\nallow = ['shell']\ndeny = ['shell:rm', 'shell:git push']\n";
    let config = place.file("rules.toml", config);
    for (command, rule) in [
        ("env rm f", "shell:rm"),
        ("$(echo rm) f", "shell:rm"),
        ("git -C . push", "shell:git push"),
    ] {
        std::fs::write(place.work().join("f"), "").expect("a file");
        let script = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: {command}}}}}]}}, {{text: Done.}}]"
        );
        let run = place.run_script(&script).arg("--config").arg(&config);
        let (envelope, _) = ends(run, 0, "completed");
        let denied = envelope["denials"].to_string();
        assert!(denied.contains(rule), "{command}: {envelope:#}");
        assert!(place.work().join("f").exists(), "{command}: it ran");
    }
}
