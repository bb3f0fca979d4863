//! A crash under the policy `keep`: the completed steps stay in the conversation, and only the other calls are lost.

use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal};

const PAYS_AND_HANGS: &str = "turns: [{when: pay, replies: [
    {calls: [{tool: shell, arguments: {command: 'echo paid >> ledger'}}]},
    {calls: [{tool: shell, arguments: {command: 'touch begun; sleep 600'}}]}]},
  {when: again, replies: [{text: Fine.}]}]";

#[test]
fn only_the_calls_outside_the_conversation_are_reported_as_lost() {
    let place = Place::new();
    let run = place.run_script(PAYS_AND_HANGS).args("--on-stop keep");
    let mut running = run.arg("pay").start();
    let begun = place.work().join("begun");
    eventually("the second step", || begun.exists().then_some(()));
    running.signal(Signal::KILL);
    let _killed = running.end(FACT_MAX);
    let show = |command: &str| {
        let shown = place.allstop().args(command).arg("--store");
        shown.arg(place.store()).end().ok().stdout
    };
    let kept = "the message and the completed steps of turn 1 are in the conversation; these calls are not";
    let check = |when: &str| {
        let receipt = show("receipt last");
        let (_, lost) = receipt
            .split_once(kept)
            .unwrap_or_else(|| panic!("{when}: {receipt}"));
        assert!(
            lost.contains("touch begun") && !lost.contains("ledger"),
            "{when}: {receipt}"
        );
        let shown = show("sessions show last");
        let (_, lost) = shown
            .split_once(kept)
            .unwrap_or_else(|| panic!("{when}: {shown}"));
        assert!(
            lost.contains("touch begun") && !lost.contains("ledger"),
            "{when}: {shown}"
        );
        assert!(!shown.contains("turn 1 is not in"), "{when}: {shown}");
        let shown: serde_json::Value =
            serde_json::from_str(&show("sessions show last --json")).expect("JSON");
        let lost = &shown["lost"];
        assert_eq!(lost[0]["partly_kept"], true, "{when}: {shown:#}");
        assert_eq!(
            lost[0]["effects"]["calls"].as_array().map(Vec::len),
            Some(1)
        );
    };
    check("before the next open");
    let next = place.run_script(PAYS_AND_HANGS).args("--continue");
    let next = next.args("--json again").end().ok();
    let envelope = next.envelope();
    let reported = envelope["reported_calls"].as_array().expect("a list");
    assert_eq!(reported.len(), 1, "{envelope:#}");
    assert_eq!(
        reported[0]["label"], "touch begun; sleep 600",
        "{envelope:#}"
    );
    assert_eq!(
        envelope["lost_calls"],
        serde_json::json!([]),
        "{envelope:#}"
    );
    let (_, lost) = next
        .stderr
        .split_once("completed steps stay in the conversation, but these calls do not:")
        .unwrap_or_else(|| panic!("{next:#?}"));
    assert!(
        lost.contains("touch begun") && !lost.contains("ledger"),
        "{next:#?}"
    );
    check("after the next open");
}
