//! Hooks and guardrails that are commands.

use std::time::{Duration, Instant};

use allstop_agent::{AgentEvent, TurnErrorKind};
use allstop_core::StopReason;
use allstop_core::receipt::ItemState;
use allstop_model::Reply;
use allstop_runtime::SessionSetup;
use allstop_session::{SessionEventKind, StopTarget};
use serde_json::{Value, json};

use crate::{Place, one_turn, sleepers, token, user, wait_until, within};

/// Upper bound for a reaction without a wait: shorter than every wait that a hang would cause.
const SOON: Duration = Duration::from_secs(8);

fn hook(on: &str, command: &str) -> String {
    format!("[[hooks]]\non = \"{on}\"\ncommand = '''{command}'''\n")
}

fn guardrail(on: &str, command: &str) -> String {
    format!("[[guardrails]]\non = \"{on}\"\ncommand = '''{command}'''\n")
}

fn listing() -> Vec<Reply> {
    vec![
        Reply::text("Let me look.").call("list", json!({})),
        Reply::text("Done."),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_receives_the_events_of_its_moment() {
    let place = Place::new();
    let config: String = [
        "turn_start",
        "model_start",
        "model_end",
        "tool_start",
        "tool_end",
        "turn_end",
    ]
    .map(|on| hook(on, "printf '%s\\n' \"$ALLSTOP_EVENT\" >> events"))
    .concat();
    let system = place.system(&config, listing()).await;
    let turn = within(one_turn(&system, "hi \"there\"\n")).await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    let events = std::fs::read_to_string(place.file("events")).unwrap();
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "turn_start",
            "model_start",
            "model_end",
            "tool_start",
            "tool_end",
            "model_start",
            "model_end",
            "turn_end"
        ]
    );
    assert_eq!(events[0]["input"], "hi \"there\"\n");
    assert_eq!(events[0]["turn"], 1);
    assert_eq!(events[3]["call"]["name"], "list");
    assert_eq!(events[4]["outcome"], "succeeded");
    assert_eq!(events[7]["stop_reason"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_2_denies_a_call_with_the_output_as_the_reason() {
    let place = Place::new();
    let config = hook("tool_start", "printf 'not\\ntoday \\033[2J'; exit 2");
    let system = place.system(&config, listing()).await;
    let turn = within(one_turn(&system, "go")).await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert_eq!(turn.denials.len(), 1);
    assert_eq!(turn.denials[0].reason, "not today [2J");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_hook_denies() {
    for (command, message) in [
        (
            "echo oh no >&2; exit 1",
            "the hook `echo oh no >&2; exit 1` failed: exit code 1: oh no",
        ),
        (
            "kill -9 $$",
            "the hook `kill -9 $$` failed: killed by signal 9",
        ),
        ("exit 2", "denied by the hook `exit 2`"),
    ] {
        let place = Place::new();
        let system = place.system(&hook("turn_start", command), listing()).await;
        let turn = within(one_turn(&system, "go")).await;
        assert_eq!(turn.stop_reason, StopReason::Error, "{command}");
        let error = turn.error.as_ref().expect("an error");
        assert_eq!(error.kind, TurnErrorKind::Hook);
        assert_eq!(error.message, message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_may_print_200_kb() {
    let place = Place::new();
    let config = hook("model_start", "head -c 200000 /dev/zero | tr '\\0' x");
    let system = place.system(&config, listing()).await;
    let turn = within(one_turn(&system, "go")).await;
    assert_eq!(turn.stop_reason, StopReason::Completed);

    let config = hook(
        "tool_start",
        "head -c 200000 /dev/zero | tr '\\0' x; exit 2",
    );
    let system = place.system(&config, listing()).await;
    let turn = within(one_turn(&system, "go")).await;
    assert_eq!(turn.denials[0].reason.len(), 4096);
}

#[tokio::test(flavor = "multi_thread")]
async fn grandchild_that_holds_the_pipe_is_ended_without_delay() {
    let place = Place::new();
    let token = token();
    let config = hook(
        "turn_start",
        &format!("trap '' TERM; setsid sleep {token} & sleep {token} & exit 0"),
    );
    let system = place.system(&config, listing()).await;
    let start = Instant::now();
    let turn = within(one_turn(&system, "go")).await;
    assert_eq!(turn.stop_reason, StopReason::Completed);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(sleepers(&token), 0);
    assert!(system.scope().is_quiet());
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_hook_is_ended_after_its_timeout() {
    let place = Place::new();
    let token = token();
    let config =
        hook("turn_start", &format!("sleep {token} & sleep {token}")) + "timeout = \"200ms\"";
    let system = place.system(&config, listing()).await;
    let turn = within(one_turn(&system, "go")).await;
    assert_eq!(turn.stop_reason, StopReason::Error);
    let message = &turn.error.as_ref().expect("an error").message;
    assert!(
        message.ends_with(
            "failed: it exceeded its limit of 200ms: it and everything it started were stopped"
        ),
        "{message}"
    );
    assert_eq!(sleepers(&token), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_during_a_hook_is_not_a_denial() {
    for moment in ["turn_start", "tool_start", "tool_end"] {
        let place = Place::new();
        let token = token();
        let config = hook(moment, &format!("setsid sleep {token} & sleep {token}"));
        let system = place.system(&config, listing()).await;
        let session = system.new_session(None, SessionSetup::default()).await;
        let session = session.unwrap().session;
        let sent = session.send("go").unwrap();
        wait_until("the hook runs", || sleepers(&token) == 2).await;
        let start = Instant::now();
        let receipt = session.stop(&StopTarget::Turn, user()).receipt().await;
        let turn = within(sent.outcome()).await;
        assert!(start.elapsed() < SOON);
        assert!(
            receipt.quiet() && receipt.cancel_observed(),
            "{moment}: {receipt:?}"
        );
        // The processes of a hook in a call belong to the call.
        let process = receipt
            .items()
            .iter()
            .find(|item| item.containment.is_some())
            .unwrap();
        assert!(
            matches!(process.state, ItemState::Stopped { .. }),
            "{process:?}"
        );
        assert_eq!(sleepers(&token), 0);
        assert_eq!(turn.stop_reason, StopReason::Cancelled);
        assert!(turn.denials.is_empty() && turn.error.is_none(), "{moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guardrails_pass_refuse_and_fail_closed() {
    for (config, reason, detail) in [
        (guardrail("input", "exit 0"), StopReason::Completed, None),
        (guardrail("output", "exit 0"), StopReason::Completed, None),
        (
            guardrail("input", "echo secret; exit 2"),
            StopReason::Guardrail,
            Some("secret"),
        ),
        (
            guardrail("output", "exit 2"),
            StopReason::Guardrail,
            Some("refused by the guardrail `exit 2`"),
        ),
        (
            guardrail("output", "nonsuch 2>&-"),
            StopReason::Guardrail,
            Some("the guardrail `nonsuch 2>&-` failed: exit code 127"),
        ),
        (
            guardrail(
                "input",
                "echo \"$ALLSTOP_EVENT\" | grep -q word && exit 2; exit 0",
            ),
            StopReason::Guardrail,
            None,
        ),
    ] {
        let place = Place::new();
        let system = place.system(&config, listing()).await;
        let turn = within(one_turn(&system, "a word")).await;
        assert_eq!(turn.stop_reason, reason, "{config}");
        if let Some(detail) = detail {
            assert_eq!(turn.cause.as_ref().unwrap().detail.as_deref(), Some(detail));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_too_long_for_a_variable_is_in_a_file() {
    let place = Place::new();
    let config = guardrail(
        "input",
        "file=$(echo \"$ALLSTOP_EVENT\" | sed 's/.*\"file\":\"\\([^\"]*\\)\".*/\\1/'); wc -c < $file > size; grep -q needle $file && exit 2; exit 0",
    );
    let system = place.system(&config, listing()).await;
    let prompt = "x".repeat(1_000_000) + "needle";
    let turn = within(one_turn(&system, &prompt)).await;
    assert_eq!(turn.stop_reason, StopReason::Guardrail);
    let size = std::fs::read_to_string(place.file("size")).unwrap();
    assert!(size.trim().parse::<usize>().unwrap() > 1_000_006, "{size}");
    within(system.close()).await;
    let left = std::fs::read_dir(place.file("output")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "the event's file and the empty folder are removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_report_a_denied_call() {
    let place = Place::new();
    let system = place.system(&hook("tool_start", "exit 2"), listing()).await;
    let session = system.new_session(None, SessionSetup::default()).await;
    let session = session.unwrap().session;
    let mut events = session.watch();
    within(session.send("go").unwrap().outcome()).await;
    let mut finished = None;
    while let Some(event) = events.try_next() {
        if let SessionEventKind::Live(AgentEvent::ToolFinished { outcome, .. }) = event.kind {
            finished = Some(outcome);
        }
    }
    assert_eq!(finished, Some(allstop_core::record::CallOutcome::Denied));
}
