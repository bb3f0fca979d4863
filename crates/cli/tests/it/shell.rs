//! Shell commands that resist their stop, print without end, or leave processes.

use serde_json::Value;

use crate::support::processes::memory_kb;
use crate::support::{Allstop, Place, Signal, eventually};

/// Shell command that ignores SIGTERM. It has a child process, and another process in a separate Unix session.
const STUBBORN: &str = "trap \\\"\\\" TERM; setsid sleep 600 & sleep 600 & touch ready; wait";

fn calls(call: &str) -> String {
    format!(
        "replies: [{{calls: [{{tool: shell, arguments: {call}}}]}}, {{text: The end., stall: end}}]"
    )
}

fn wait_ready(place: &Place) {
    eventually("the shell runs", || {
        place.work().join("ready").exists().then_some(())
    });
}

/// The only item in the receipt of an envelope.
#[track_caller]
fn only_item(envelope: &Value) -> &Value {
    let items = envelope["receipt"]["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{envelope:#}");
    &items[0]
}

#[test]
fn stop_kills_a_stubborn_tree_before_its_receipt() {
    let place = Place::new();
    let script = calls(&format!("{{command: \"{STUBBORN}\"}}"));
    let run = place
        .run_script(&script)
        .args("--json --grace 200ms")
        .arg("go");
    let running = run.start();
    wait_ready(&place);
    assert!(
        place.leftovers().len() >= 4,
        "a keeper, a shell, two sleepers"
    );
    let ended = running.end_by(Signal::INT);
    place.assert_nothing_runs();
    let envelope = ended.envelope();
    assert_eq!(only_item(&envelope)["how"], "sigkill", "{envelope:#}");
    assert_eq!(only_item(&envelope)["verified"], "process_tree_empty");
    assert_eq!(only_item(&envelope)["containment"], "keeper");
}

#[test]
fn deadline_of_a_run_kills_a_stubborn_tree() {
    let place = Place::new();
    let script = calls(&format!("{{command: \"{STUBBORN}\"}}"));
    let run = place.run_script(&script);
    let ended = run
        .args("--json --grace 200ms --timeout 1s")
        .arg("go")
        .end();
    place.assert_nothing_runs();
    assert_eq!(ended.code, 124);
    let envelope = ended.envelope();
    assert_eq!(envelope["receipt"]["quiet"], true, "{envelope:#}");
    assert_eq!(only_item(&envelope)["how"], "sigkill", "{envelope:#}");
}

#[test]
fn timeout_of_a_call_kills_a_stubborn_tree() {
    let place = Place::new();
    let script = calls(&format!("{{command: \"{STUBBORN}\", timeout_s: 1}}"));
    let run = place.run_script(&script);
    let running = run.args("--stream-json --grace 200ms").arg("go").start();
    wait_ready(&place);
    running.wait_stdout("\"tool_finished\"");
    // Ignore idle keepers: the only other process must be the run itself.
    let mut left = place.leftovers();
    left.retain(|process| !process.is_keeper());
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0].pid, running.pid());
    running.wait_stdout("The end.");
    let ended = running.end_by(Signal::INT);
    let finished = ended
        .lines()
        .into_iter()
        .find(|line| line["event"] == "tool_finished");
    let content = finished.expect("it was seen")["content"].to_string();
    assert!(content.contains("exceeded its limit of 1 s"), "{content}");
}

#[test]
fn a_command_that_kills_its_keeper_has_an_unknown_outcome() {
    check_killed_keeper(|run| run);
}

/// In such a namespace, the Unix session and the process group of the command have the id 0, because their leaders are
/// outside the namespace.
#[test]
fn a_keeper_can_be_killed_in_a_pid_namespace_too() {
    const ENTER: &str = "unshare --user --map-root-user --pid --fork --mount-proc";
    let mut words = ENTER.split(' ').chain(["true"]);
    let program = words.next().expect("a program");
    let status = std::process::Command::new(program).args(words).status();
    if status.is_ok_and(|status| status.success()) {
        check_killed_keeper(|run| run.by(ENTER));
    } else {
        eprintln!("not checked: this machine allows no namespaces (`{ENTER}`)");
    }
}

fn check_killed_keeper(wrap: impl FnOnce(Allstop<'_>) -> Allstop<'_>) {
    let place = Place::new();
    // This process leaves its process group and its Unix session, and clears its environment. Because the keeper is
    // killed, the process also loses its ancestors. So no mark identifies it as a process of the call.
    let sleeper = place.sleeper();
    let escape = format!("setsid env -i {sleeper} & echo away; kill -9 $PPID; {sleeper}");
    let script = calls(&format!("{{command: \"{escape}\"}}")).replace(", stall: end", "");
    let run = place.run_script(&script).args("--stream-json").arg("go");
    let ended = wrap(run).end().ok();
    let lines = ended.lines();
    let finished = lines.iter().find(|line| line["event"] == "tool_finished");
    let finished = finished.expect("the call ended");
    assert_eq!(finished["outcome"], "unknown", "{finished:#}");
    let content = finished["content"].as_str().expect("text");
    assert!(content.contains("exit code unknown"), "{content}");
    assert!(content.contains("keeper was killed"), "{content}");
    assert!(content.contains("away"), "{content}");
    place.assert_nothing_runs();
}

#[test]
fn child_that_holds_the_output_delays_no_call() {
    let place = Place::new();
    let script = calls("{command: \"sleep 600 & echo started\"}").replace(", stall: end", "");
    let ended = place
        .run_script(&script)
        .args("--stream-json")
        .arg("go")
        .end()
        .ok();
    place.assert_nothing_runs();
    let lines = ended.lines();
    let finished = lines.iter().find(|line| line["event"] == "tool_finished");
    let finished = finished.expect("the call ended");
    assert_eq!(finished["outcome"], "succeeded");
    let content = finished["content"].as_str().expect("text");
    assert!(content.starts_with("started\n"), "{content}");
    assert!(content.contains("bg_1: `sleep 600`"), "{content}");
    let envelope = lines.last().expect("an envelope");
    assert_eq!(envelope["stop_reason"], "completed");
    assert_eq!(envelope["receipt"]["extent"], "process");
    let item = only_item(envelope);
    assert_eq!(
        [&item["kind"], &item["id"], &item["state"]],
        ["background", "bg_1", "stopped"]
    );
    assert_eq!(item["verified"], "process_tree_empty");
}

mod alone {
    use std::time::Duration;

    use super::*;

    /// Memory limit of the process while it reads 200 MB of output. Without this output, the process uses 35 MB.
    const MEMORY_KB_MAX: u64 = 80 * 1024;

    #[test]
    fn two_hundred_megabytes_cost_no_memory_and_delay_no_stop() {
        let place = Place::new();
        let script = calls(
            "{command: \"head -c 200000000 /dev/zero | tr '\\\\0' x; touch ready; exec yes\"}",
        );
        let running = place.run_script(&script).args("--json").arg("go").start();
        wait_ready(&place);
        let peak = memory_kb(running.pid(), "VmHWM").expect("it runs");
        let ended = running.end_by(Signal::INT);
        println!("peak {peak} kB, ended after {:?}", ended.since_signal());
        place.assert_nothing_runs();
        assert!(peak < MEMORY_KB_MAX, "{peak} kB");
        let envelope = ended.envelope();
        assert_eq!(only_item(&envelope)["how"], "sigterm", "{envelope:#}");
        assert!(
            ended.since_signal() < Duration::from_millis(500),
            "{ended:#?}"
        );
    }

    #[test]
    fn a_stop_while_all_of_it_is_being_printed_is_as_quick() {
        let place = Place::new();
        let script = calls("{command: \"touch ready; yes & yes & exec yes\"}");
        let running = place.run_script(&script).args("--json").arg("go").start();
        wait_ready(&place);
        let ended = running.end_by(Signal::INT);
        println!("ended after {:?}", ended.since_signal());
        place.assert_nothing_runs();
        assert_eq!(ended.envelope()["receipt"]["quiet"], true);
        assert!(
            ended.since_signal() < Duration::from_millis(500),
            "{ended:#?}"
        );
    }
}
