//! Stalls of the store and of the files next to it, in a turn and at its end.

use std::fs;

use super::stall::{ExpectedEnd, HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::Place;
use crate::support::fault::Fault;

/// A run of this script with an injected fault. The fault takes effect when the file `ready` exists.
fn below(place: &Place, rule: &str, args: &str, yaml: &str) -> HangingRun {
    let fault = Fault::new(place, &when_ready(place, rule));
    let run = place.run_script(yaml).args(args).arg("hello");
    HangingRun::from(fault.below(run).start()).once_hit(fault)
}

fn when_ready(place: &Place, rule: &str) -> String {
    format!("{rule} when={}", place.path("ready").display())
}

/// Script of a turn with one call. The call first creates the file `ready`.
fn calling(place: &Place, command: &str) -> String {
    format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: 'touch {}; {command}'}}}}]}}, {{text: done}}]",
        place.path("ready").display()
    )
}

#[test]
fn the_end_of_a_call_is_not_written() {
    let begin = |place: &Place, args: &str| {
        below(place, "sync store.db hang", args, &calling(place, "true"))
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn the_store_takes_no_byte() {
    let begin = |place: &Place, args: &str| {
        below(place, "write store.db- hang", args, &calling(place, "true"))
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

/// The disk begins to hang while the call runs. So nothing can be written during the shutdown.
#[test]
fn the_disk_hangs_below_a_call() {
    let begin = |place: &Place, args: &str| {
        let rules = [
            "sync", "write", "unlink", "rmdir", "open", "truncate", "mkdir",
        ]
        .map(|call| when_ready(place, &format!("{call} store.db hang")));
        let fault = Fault::new(place, &rules.join("\n"));
        let run = place
            .run_script(&calling(place, "sleep 600"))
            .args(args)
            .arg("hello");
        HangingRun::from(fault.below(run).start())
            .once_there(&place.path("ready"))
            .with(fault)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

/// The thread that writes the file cannot be forced. It may still run after the stop, if the receipt lists it.
#[test]
fn the_file_of_a_long_output_does_not_open() {
    let begin = |place: &Place, args: &str| {
        let yaml = calling(place, "head -c 300000 /dev/zero; sleep 600");
        below(place, "open store.db.output hang", args, &yaml)
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn the_file_of_a_long_output_takes_no_byte() {
    let begin = |place: &Place, args: &str| {
        let yaml = calling(
            place,
            "while :; do head -c 300000 /dev/zero; sleep 0.05; done",
        );
        below(place, "write store.db.output hang", args, &yaml)
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

/// A run with a call, and with background work whose output cannot be written.
fn printing_behind(place: &Place, args: &str) -> HangingRun {
    let ready = place.path("ready");
    let yaml = format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{background: true, command: 'touch {}; while :; do echo x; sleep 0.05; done'}}}}, {{tool: shell, arguments: {{command: sleep 600}}}}]}}]",
        ready.display()
    );
    below(place, "write store.db.output hang", args, &yaml)
}

#[test]
fn the_output_of_background_work_takes_no_byte() {
    let begin = |place: &Place, args: &str| printing_behind(place, args);
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

/// The background work is detached before its output is written. So the work keeps running, and the run prints its
/// name.
#[test]
fn the_output_of_background_work_to_be_kept_takes_no_byte() {
    let begin =
        |place: &Place, args: &str| printing_behind(place, &format!("{args} --keep-background"));
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

/// The run has to keep its background work. This is impossible, because nothing can be written during the shutdown.
#[test]
fn the_disk_hangs_below_a_call_and_work_to_be_kept() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, &when_ready(place, "sync store.db hang"));
        let yaml = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{background: true, command: \"trap '' TERM; while :; do sleep 0.05; done\"}}}}, {{tool: shell, arguments: {{command: 'touch {}; sleep 600'}}}}]}}]",
            place.path("ready").display()
        );
        let run = place.run_script(&yaml).arg("--keep-background");
        HangingRun::from(fault.below(run.args(args).arg("hello")).start())
            .once_there(&place.path("ready"))
            .with(fault)
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

/// A run that hangs during its commit. The last step before the commit is an output guardrail. While the guardrail
/// runs, this function switches the fault on.
fn committing(place: &Place, args: &str, rule: &str) -> HangingRun {
    committing_script(place, args, rule, "replies: [{text: Hello.}]")
}

fn committing_script(place: &Place, args: &str, rule: &str, yaml: &str) -> HangingRun {
    let fault = Fault::new(place, "");
    let (ready, go) = (place.path("ready"), place.path("go"));
    let config = format!(
        "[[guardrails]]\non = \"output\"\ncommand = \"touch {}; until test -e {}; do sleep 0.01; done\"\n",
        ready.display(),
        go.display()
    );
    let config = place.file("allstop.toml", config);
    let run = place.run_script(yaml).arg("--config").arg(config);
    let running = fault.below(run.args(args).arg("hello")).start();
    let hanging = HangingRun::from(running).once_there(&ready);
    fault.set(rule);
    fs::write(go, "").expect("a file in the place");
    hanging.once_hit(fault)
}

#[test]
fn the_commit_is_not_synced() {
    let begin = |place: &Place, args: &str| committing(place, args, "sync store.db hang");
    Stall::new(begin)
        .ends(ExpectedEnd::Unconfirmed)
        .not_quiet()
        .check(&RunStopMethod::ALL);
}

/// The stop of the whole process also covers the background work. The receipt of this stop must report the end of the
/// turn as unknown.
#[test]
fn the_commit_beside_background_work_is_not_synced() {
    let begin = |place: &Place, args: &str| {
        let yaml = "replies: [{calls: [{tool: shell, arguments: {background: true, command: sleep 600}}]}, {text: Hello.}]";
        committing_script(place, args, "sync store.db hang", yaml)
    };
    Stall::new(begin)
        .ends(ExpectedEnd::Unconfirmed)
        .not_quiet()
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_commit_is_not_written() {
    let begin = |place: &Place, args: &str| committing(place, args, "write store.db- hang");
    Stall::new(begin)
        .ends(ExpectedEnd::Unconfirmed)
        .not_quiet()
        .check(&RunStopMethod::ALL);
}

/// The turn must never be reported as stopped, even if the commit is not confirmed in time.
#[test]
fn the_commit_is_synced_slowly() {
    let begin = |place: &Place, args: &str| committing(place, args, "sync store.db 400ms");
    Stall::new(begin)
        .ends(ExpectedEnd::NotStopped)
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_folder_for_output_cannot_be_removed() {
    let begin = |place: &Place, args: &str| {
        let rule = when_ready(place, "rmdir store.db.output hang");
        let fault = Fault::new(place, &rule);
        let run = place
            .run_script(&calling(place, "sleep 600"))
            .args(args)
            .arg("hello");
        HangingRun::from(fault.below(run).start())
            .once_there(&place.path("ready"))
            .with(fault)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn a_lock_cannot_be_removed() {
    let begin = |place: &Place, args: &str| {
        let rule = when_ready(place, "unlink store.db hang");
        let fault = Fault::new(place, &rule);
        let run = place
            .run_script(&calling(place, "sleep 600"))
            .args(args)
            .arg("hello");
        HangingRun::from(fault.below(run).start())
            .once_there(&place.path("ready"))
            .with(fault)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn the_recording_cannot_be_written() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "open record.yaml hang");
        let run = place.run_script(&calling(place, "sleep 600")).args(args);
        let run = run
            .arg("--record")
            .arg(place.path("record.yaml"))
            .arg("hello");
        HangingRun::from(fault.below(run).start())
            .once_there(&place.path("ready"))
            .with(fault)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

/// The stop comes after the commit, so the turn stays committed.
#[test]
fn the_recording_of_a_completed_run_cannot_be_written() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "open record.yaml hang");
        let run = place.run_script("replies: [{text: Hello.}]").args(args);
        let run = run
            .arg("--record")
            .arg(place.path("record.yaml"))
            .arg("hello");
        HangingRun::from(fault.below(run).start()).once_hit(fault)
    };
    Stall::new(begin)
        .ends(ExpectedEnd::Committed)
        .check(&RunStopMethod::ALL);
}
