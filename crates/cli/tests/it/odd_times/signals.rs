//! Signals at unexpected moments.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{FACT_MAX, Place, Running, eventually};

/// Waits until the process has installed its signal handlers. From then on, the process must print an envelope (the
/// JSON object with the result).
#[track_caller]
fn wait_for_its_handlers(running: &Running) {
    eventually("its signal handlers", || {
        let mut all = [Signal::INT, Signal::TERM, Signal::HUP].into_iter();
        all.all(|signal| running.catches(signal)).then_some(())
    });
}

#[test]
fn before_anything_was_opened() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let run = place.run_script("replies: [{text: Hello., stall: end}]");
        let mut running = run.args("--json hello").start();
        wait_for_its_handlers(&running);
        running.signal(signal);
        let ended = running.end(FACT_MAX);
        assert_eq!(ended.code, code, "{ended:#?}");
        ended.envelope();
        place.assert_nothing_runs();
    }
}

#[test]
fn at_its_very_birth() {
    for wait_us in (0..40_000).step_by(2_000) {
        let place = Place::new();
        let run = place.run_script("replies: [{text: Hello., stall: end}]");
        let mut running = run.args("--json hello").start();
        let _alive = !running.ends_within(Duration::from_micros(wait_us));
        running.signal(Signal::INT);
        let ended = running.end(FACT_MAX);
        assert_eq!(ended.code, 130, "{ended:#?}");
        assert_eq!(ended.stderr, "", "{ended:#?}");
        // Without an envelope, the signal killed the process before it had installed its handlers.
        if !ended.stdout.is_empty() {
            ended.envelope();
        }
        place.assert_nothing_runs();
    }
}

#[test]
fn while_the_prompt_is_read() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let run = place
            .run_script("replies: [{text: Hello.}]")
            .args("--json -");
        let mut running = run.stdin(Stdio::piped()).start();
        let _never_written = running.take_stdin();
        wait_for_its_handlers(&running);
        running.signal(signal);
        let ended = running.end(FACT_MAX);
        assert_eq!(ended.code, code, "{ended:#?}");
        let envelope = ended.envelope();
        assert!(envelope["session_id"].is_null(), "{envelope:#}");
    }
}

/// A signal that stops the whole process arrives after the commit of one turn and before the next message. The run must
/// not report that the message could not be sent.
#[test]
fn between_two_turns_beside_background_work() {
    for _ in 0..8 {
        let place = Place::new();
        let run = place.run_script(
            "replies: [{calls: [{tool: shell, arguments: {command: sleep 600, background: true}}]}, {text: one}, {calls: [{tool: shell, arguments: {command: sleep 600}}]}]",
        );
        let running = run.args("--stream-json first --then second").start();
        running.wait_stdout("step_answered\",\"step\":2");
        let ended = running.end_by(Signal::INT);
        place.assert_nothing_runs();
        assert_eq!(ended.code, 130, "{ended:#?}");
        let lines = ended.lines();
        let envelope = &lines[lines.len() - 1];
        assert_eq!(envelope["stop_reason"], "cancelled", "{envelope:#}");
        assert!(envelope["error"].is_null(), "{envelope:#}");
    }
}

#[test]
fn while_background_work_is_waited_for() {
    let place = Place::new();
    let run = place.run_script(
        "replies: [{calls: [{tool: shell, arguments: {command: sleep 600, background: true}}]}, {text: done}]",
    );
    let running = run.args("--stream-json --wait-background hello").start();
    running.wait_stdout("turn_ended");
    let ended = running.end_by(Signal::INT);
    place.assert_nothing_runs();
    assert_eq!(ended.code, 130, "{ended:#?}");
    let lines = ended.lines();
    let envelope = &lines[lines.len() - 1];
    // The turn was committed, but the wait for background work was cancelled. The stop reason in the envelope must
    // agree with the exit code.
    assert_eq!(envelope["stop_reason"], "cancelled");
    assert_eq!(envelope["output"], "done");
    assert_eq!(envelope["receipt"]["cause"]["kind"], "user", "{envelope:#}");
    assert_eq!(envelope["receipt"]["quiet"], true, "{envelope:#}");
}

/// A run whose parent process ignores SIGHUP, like `nohup`, keeps running after a SIGHUP.
#[test]
fn an_ignored_hang_up_stays_ignored() {
    let place = Place::new();
    let run = place.run_script(
        "replies: [{calls: [{tool: shell, arguments: {command: 'touch ready; until test -e go; do sleep 0.01; done'}}]}, {text: Hello.}]",
    );
    let run = run.args("--json hello");
    let mut running = run.by_shell("trap '' HUP").start();
    let work = place.work();
    eventually("the call", || work.join("ready").exists().then_some(()));
    running.signal(Signal::HUP);
    assert!(!running.ends_within(Duration::from_millis(300)));
    std::fs::write(work.join("go"), "").expect("a file");
    let ended = running.end(FACT_MAX).ok();
    assert_eq!(ended.envelope()["output"], "Hello.");
}

#[test]
fn signals_that_the_parent_blocked_are_heard() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let run = place.run_script(
            "replies: [{calls: [{tool: shell, arguments: {command: 'grep SigBlk /proc/self/status > mask; touch ready; sleep 600'}}]}]",
        );
        let run = run.args("--json hello");
        let running = run.by("env --block-signal=INT,TERM,HUP,CHLD,USR1").start();
        let work = place.work();
        eventually("the call", || work.join("ready").exists().then_some(()));
        let ended = running.end_by(signal);
        assert_eq!(ended.code, code, "{ended:#?}");
        assert_eq!(ended.envelope()["receipt"]["quiet"], true);
        let mask = std::fs::read_to_string(work.join("mask")).expect("a mask");
        assert_eq!(mask.trim(), "SigBlk:\t0000000000000000");
        place.assert_nothing_runs();
    }
}

#[test]
fn a_stopped_demo_leaves_no_folder() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let temporary = place.path("tmp");
        std::fs::create_dir(&temporary).expect("a folder");
        let demo = place.allstop().arg("demo").env("TMPDIR", &temporary);
        let running = demo.start();
        running.wait_stdout("one turn starts");
        let ended = running.end_by(signal);
        assert_eq!(ended.code, code, "{ended:#?}");
        assert!(ended.stdout.contains("the demo was stopped"), "{ended:#?}");
        let left: Vec<_> = std::fs::read_dir(&temporary).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
        place.assert_nothing_runs();
    }
}

mod alone {
    use super::*;

    /// Script of a turn that ends soon and leaves a shell running in the background. On SIGTERM, this shell creates the
    /// file `asked` and keeps running.
    fn stubborn_background(place: &Place) -> String {
        let work = place.work();
        let work = work.to_str().expect("text");
        format!(
            "
replies:
  - calls:
      - tool: shell
        arguments:
          command: 'trap \"touch {work}/asked\" TERM; while :; do sleep 0.05; done'
          background: true
      - {{tool: shell, arguments: {{command: 'sleep 0.2'}}}}
  - text: done
"
        )
    }

    #[test]
    fn while_background_work_is_being_stopped() {
        let place = Place::new();
        let run = place.run_script(&stubborn_background(&place));
        let mut running = run.args("--json --grace 20s hello").start();
        let asked = place.work().join("asked");
        eventually("it was asked", || asked.exists().then_some(()));
        running.signal(Signal::INT);
        let ended = running.end(FACT_MAX);
        let after = ended.since_signal();
        println!("after {after:?}");
        place.assert_nothing_runs();
        // The turn stays committed, because the signal came after its end. The signal only shortened the stop of the
        // background work.
        let envelope = ended.ok().envelope();
        assert_eq!(envelope["stop_reason"], "completed");
        let item = &envelope["receipt"]["items"][0];
        assert_eq!(item["how"], "sigkill", "{envelope:#}");
        assert_eq!(envelope["receipt"]["quiet"], true, "{envelope:#}");
        assert!(after < Duration::from_millis(500), "{after:?}");
    }

    /// The stops of the turn and of the background work share one grace: the background work does not get a second
    /// grace after the stop of the turn.
    #[test]
    fn a_deadline_while_the_turn_and_its_background_work_resist() {
        const TIMEOUT: Duration = Duration::from_secs(1);
        const GRACE: Duration = Duration::from_secs(1);
        let place = Place::new();
        let stubborn = "trap \"\" TERM; while :; do sleep 0.05; done";
        let run = place.run_script(&format!(
            "
replies:
  - calls:
      - {{tool: shell, arguments: {{command: '{stubborn}', background: true}}}}
      - {{tool: shell, arguments: {{command: '{stubborn}'}}}}
"
        ));
        let ended = run.args("--json --timeout 1s --grace 1s hello").end();
        println!("after {:?}", ended.after);
        place.assert_nothing_runs();
        assert_eq!(ended.code, 124, "{ended:#?}");
        let envelope = ended.envelope();
        let receipt = &envelope["receipt"];
        assert_eq!(receipt["cause"]["kind"], "deadline", "{receipt:#}");
        assert_eq!(
            receipt["items"].as_array().map(Vec::len),
            Some(2),
            "{receipt:#}"
        );
        let bound = TIMEOUT + GRACE + Duration::from_millis(500);
        assert!(ended.after < bound, "{ended:#?}");
    }

    #[test]
    fn no_signal_at_all_while_background_work_resists() {
        let place = Place::new();
        let run = place.run_script(&stubborn_background(&place));
        let ended = run.args("--json --grace 500ms hello").end().ok();
        place.assert_nothing_runs();
        let envelope = ended.envelope();
        assert_eq!(
            envelope["receipt"]["items"][0]["how"], "sigkill",
            "{envelope:#}"
        );
        let after_ms = envelope["receipt"]["quiet_after_ms"]
            .as_f64()
            .expect("a number");
        assert!(after_ms < 1_500.0, "{envelope:#}");
    }
}
