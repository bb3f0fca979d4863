//! Detection of runs that repeat their calls.

use allstop_core::ToolCall;
use allstop_core::turn::{DetectedLoop, LoopDetector, LoopLimits};
use serde_json::json;

use crate::driver::{call, malformed};

fn no_limits() -> LoopLimits {
    LoopLimits::default()
        .repeats_max(None)
        .ping_pongs_max(None)
        .calls_per_tool_max(None)
}

/// The first call that completes a loop: the position of the call, counted from one, and the loop.
fn found(limits: LoopLimits, calls: &[ToolCall]) -> Option<(usize, DetectedLoop)> {
    let mut detector = LoopDetector::new(limits);
    let mut seen = calls.iter().map(|call| detector.observe(call));
    seen.position(|found| found.is_some()).map(|at| {
        let mut again = LoopDetector::new(limits);
        let last = calls[..=at].iter().map(|call| again.observe(call)).last();
        (
            at + 1,
            last.flatten().expect("the same calls give the same answer"),
        )
    })
}

fn read(path: &str) -> ToolCall {
    call("any", "read", json!({ "path": path }))
}

#[test]
fn the_same_call_in_a_row_is_a_loop() {
    let limits = no_limits().repeats_max(3);
    let same = || read("a");
    let loops = found(limits, &[same(), same(), same()]);
    assert_eq!(
        loops,
        Some((
            3,
            DetectedLoop::Repeat {
                tool: "read".into(),
                times: 3
            }
        ))
    );
    assert_eq!(
        found(limits, &[same(), same(), read("b"), same(), same()]),
        None
    );
}

#[test]
fn loops_depend_on_arguments_but_not_on_ids_or_key_order() {
    let limits = no_limits().repeats_max(2);
    let one = call(
        "1",
        "read",
        serde_json::from_str(r#"{"a":1,"b":2}"#).unwrap(),
    );
    let other = call(
        "2",
        "read",
        serde_json::from_str(r#"{"b":2,"a":1}"#).unwrap(),
    );
    assert!(found(limits, &[one.clone(), other]).is_some());
    assert!(found(limits, &[one, call("1", "read", json!({"a": 1, "b": 3}))]).is_none());
    assert!(
        found(
            limits,
            &[malformed("1", "read", "{"), malformed("2", "read", "{")]
        )
        .is_some()
    );
    assert!(
        found(
            limits,
            &[malformed("1", "read", "{"), malformed("2", "read", "[")]
        )
        .is_none()
    );
}

#[test]
fn two_alternating_calls_are_a_ping_pong() {
    let limits = no_limits().ping_pongs_max(3);
    let (a, b) = (read("a"), call("any", "write", json!({})));
    let turns = [
        a.clone(),
        b.clone(),
        a.clone(),
        b.clone(),
        a.clone(),
        b.clone(),
    ];
    let ping_pong = DetectedLoop::PingPong {
        first: "read".into(),
        second: "write".into(),
        times: 3,
    };
    assert_eq!(found(limits, &turns), Some((6, ping_pong)));
    assert_eq!(found(limits, &turns[..5]), None);
    let with_a_third = [
        a.clone(),
        b.clone(),
        a.clone(),
        read("c"),
        a.clone(),
        b.clone(),
        a,
        b,
    ];
    assert_eq!(found(limits, &with_a_third), None);
    let same = || read("a");
    assert_eq!(
        found(limits, &[same(), same(), same(), same(), same(), same()]),
        None
    );
}

#[test]
fn too_many_calls_of_one_tool_are_a_flood() {
    let limits = no_limits().calls_per_tool_max(4);
    let calls = ["a", "b", "c", "d"].map(read);
    assert_eq!(
        found(limits, &calls),
        Some((
            4,
            DetectedLoop::Flood {
                tool: "read".into(),
                times: 4
            }
        ))
    );
}

#[test]
fn rules_can_be_disabled_and_honest_work_is_no_loop() {
    let same = vec![read("a"); 1_000];
    assert_eq!(found(no_limits(), &same), None);
    let honest: Vec<ToolCall> = (0..400).map(|n| read(&format!("file_{n}"))).collect();
    assert_eq!(found(LoopLimits::default(), &honest), None);
}

#[test]
fn detectors_share_nothing() {
    let limits = no_limits().repeats_max(2);
    let (mut one, mut other) = (LoopDetector::new(limits), LoopDetector::new(limits));
    assert_eq!(one.observe(&read("a")), None);
    assert_eq!(other.observe(&read("a")), None);
    assert!(one.observe(&read("a")).is_some());
}
