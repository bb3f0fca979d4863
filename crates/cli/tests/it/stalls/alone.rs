//! How long each way to end takes, so it has the machine to itself.

use std::time::Duration;

use serde_json::Value;

use super::places::{BACK_OFF, Hanging, SPOTS, Spot};
use crate::support::{Ended, FACT_MAX, Place, Signal};

/// The grace that the runs get: shorter than the default, so that the tests are too.
const GRACE: Duration = Duration::from_millis(500);
const GRACE_ARGS: &str = "--json --grace 500ms";

/// What the command promises beyond its grace.
const BEYOND_GRACE: Duration = Duration::from_secs(1);

/// What the command promises after a second Ctrl-C.
const AT_ONCE: Duration = Duration::from_millis(200);

/// Signals closer together than this are taken for one.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// How often what measures a few milliseconds is tried: one scheduling of somebody else's can take as long.
const TRIES: u32 = 3;

#[expect(clippy::print_stdout, reason = "figures for who reads the output")]
fn begin(place: &Place, spot: &Spot, args: &str) -> Hanging {
    println!("{}", spot.name);
    (spot.begin)(place, args)
}

/// The envelope says what happened, and nothing is left.
#[track_caller]
fn check(spot: &Spot, place: &Place, ended: &Ended, code: i32, reason: &str, cause: [&str; 2]) {
    place.assert_nothing_runs();
    let envelope = envelope(ended);
    assert_eq!(ended.code, code, "{ended:#?}");
    assert_eq!(envelope["stop_reason"], reason, "{ended:#?}");
    let receipt = &envelope["receipt"];
    if !receipt.is_null() {
        assert_eq!(receipt["quiet"], true, "{receipt:#}");
        assert_eq!(receipt["conversation"], "unchanged", "{receipt:#}");
        assert_eq!(envelope["cancel_observed"], true, "{envelope:#}");
        let [kind, detail] = cause;
        assert_eq!(receipt["cause"]["kind"], kind, "{receipt:#}");
        assert_eq!(receipt["cause"]["detail"], detail, "{receipt:#}");
    }
    let Some([kind, how, verified]) = spot.item else {
        return;
    };
    let items = receipt["items"].as_array().expect("items");
    let item = items.iter().find(|item| item["kind"] == kind);
    let item = item.unwrap_or_else(|| panic!("no {kind} in {receipt:#}"));
    assert_eq!(item["state"], "stopped", "{item:#}");
    assert_eq!(item["how"], how, "{item:#}");
    assert_eq!(item["verified"], verified, "{item:#}");
}

/// The one envelope, behind whatever `--stream-json` said.
#[track_caller]
fn envelope(ended: &Ended) -> Value {
    if ended.stdout.lines().count() == 1 {
        return ended.envelope();
    }
    let mut lines = ended.lines();
    let envelope = lines.pop().expect("a line");
    let all_events = lines.iter().all(|line| line["schema"] == "allstop.event/1");
    assert!(all_events, "{ended:#?}");
    assert_eq!(envelope["schema"], "allstop.run/1", "{ended:#?}");
    envelope
}

/// The fake server saw its connection close.
#[track_caller]
fn check_server(hanging_on: Option<&allstop_testkit::openai_server::OpenAiServer>) {
    if let Some(server) = hanging_on {
        let closed = server.wait_until_blocking(FACT_MAX, |seen| seen.open() == 0);
        assert!(closed.is_ok(), "{closed:?}");
    }
}

#[expect(clippy::print_stdout, reason = "figures for who reads the output")]
fn one_signal(signal: Signal, code: i32, reason: &str, cause: [&str; 2]) {
    for spot in &SPOTS {
        let place = Place::new();
        let hanging = begin(&place, spot, GRACE_ARGS);
        let ended = hanging.running.end_by(signal);
        println!("  {code} after {:?}", ended.since_signal());
        check_server(hanging.server.as_ref());
        check(spot, &place, &ended, code, reason, cause);
        assert!(ended.since_signal() < GRACE + BEYOND_GRACE, "{ended:#?}");
    }
}

#[test]
fn ctrl_c_ends_it() {
    one_signal(Signal::INT, 130, "cancelled", ["user", "ctrl-c"]);
}

#[test]
fn sigterm_ends_it() {
    one_signal(Signal::TERM, 143, "shutdown", ["shutdown", "sigterm"]);
}

#[test]
fn sighup_ends_it() {
    one_signal(Signal::HUP, 129, "shutdown", ["shutdown", "sighup"]);
}

#[test]
fn the_deadline_ends_it() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    for spot in SPOTS.iter().filter(|spot| spot.name != BACK_OFF.name) {
        let place = Place::new();
        let hanging = begin(&place, spot, &format!("{GRACE_ARGS} --timeout 1s"));
        let ended = hanging.running.end(FACT_MAX);
        println!("  124 after {:?}", ended.after);
        check_server(hanging.server.as_ref());
        let cause = ["deadline", "run deadline of 1s"];
        check(spot, &place, &ended, 124, "timeout", cause);
        assert!(ended.after < TIMEOUT + GRACE + BEYOND_GRACE, "{ended:#?}");
    }
}

#[test]
fn a_second_ctrl_c_ends_it_at_once() {
    for spot in &SPOTS {
        let mut times = Vec::new();
        while times.len() < TRIES as usize && times.iter().all(|time| *time >= AT_ONCE) {
            let place = Place::new();
            let output = if spot.resists {
                "--stream-json"
            } else {
                "--json"
            };
            let mut hanging = begin(&place, spot, &format!("{output} --grace 10s"));
            hanging.running.signal(Signal::INT);
            if spot.resists {
                hanging.running.wait_stdout("stop_heard");
                assert!(!hanging.running.ends_within(2 * ONE_SIGNAL), "it resists");
                hanging.running.signal(Signal::INT);
            }
            let ended = hanging.running.end(FACT_MAX);
            println!("  130 after {:?}", ended.since_signal());
            check(spot, &place, &ended, 130, "cancelled", ["user", "ctrl-c"]);
            times.push(ended.since_signal());
        }
        assert!(
            times.iter().any(|time| *time < AT_ONCE),
            "{}: {times:?}",
            spot.name
        );
    }
}
