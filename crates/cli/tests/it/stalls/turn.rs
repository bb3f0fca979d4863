//! Stalls of the work in a turn: calls, permission questions, hooks, guardrails, background work.

use std::fs;

use rustix::process::{Pid, kill_process};

use super::stall::{ExpectedEnd, HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::terminal::Terminal;
use crate::support::{Place, Signal};

const PROCESS: [&str; 3] = ["process", "sigkill", "process_tree_empty"];
const TOOL: [&str; 3] = ["tool_call", "sigkill", "process_tree_empty"];

/// Script of a model that makes a harmless call, which needs a permission.
const ASKS: &str =
    "replies: [{calls: [{tool: shell, arguments: {command: 'true'}}]}, {text: done}]";

/// A command that ignores SIGTERM and starts another process in a separate Unix session.
fn stubborn(place: &Place) -> String {
    format!(
        "trap '' TERM; setsid sleep 600 & sleep 600 & touch {}; wait",
        place.path("ready").display()
    )
}

#[test]
fn a_call() {
    let begin = |place: &Place, args: &str| {
        let yaml = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: \"{}\"}}}}]}}]",
            stubborn(place)
        );
        let run = place.run_script(&yaml).args(args).arg("hello");
        HangingRun::from(run.start()).once_there(&place.path("ready"))
    };
    Stall::new(begin).item(TOOL).check(&RunStopMethod::ALL);
}

/// The keeper, the process that watches the processes of a call, is suspended. So it is unknown if processes of the
/// call are left.
#[test]
fn the_keeper_of_a_call() {
    let begin = |place: &Place, args: &str| {
        let ready = place.path("ready");
        let yaml = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{command: 'echo $PPID > {}; sleep 600'}}}}]}}]",
            ready.display()
        );
        let run = place.run_script(&yaml).args(args).arg("hello");
        let read = || fs::read_to_string(&ready).unwrap_or_default();
        let hanging = HangingRun::from(run.start()).once("its keeper", || read().ends_with('\n'));
        if let Some(keeper) = read().trim().parse().ok().and_then(Pid::from_raw) {
            // The result is ignored: if a deadline ended the run early, the keeper may already have ended.
            let _stopped = kill_process(keeper, Signal::STOP);
        }
        hanging
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn a_question() {
    let begin = |place: &Place, args: &str| {
        let terminal = Terminal::new();
        let run = place.run_unasked().arg("--model").arg(place.script(ASKS));
        let running = run
            .args(args)
            .arg("hello")
            .on_terminal(terminal.line())
            .start();
        HangingRun::from(running)
            .once("a question", || terminal.shown().contains("[n]o"))
            .holding(terminal)
    };
    Stall::new(begin)
        .item(["permission", "acknowledged", "task_ended"])
        .check(&RunStopMethod::ALL);
}

/// A run with this section, such as a hook, in its configuration. The command of the section hangs.
fn command_of_config(place: &Place, args: &str, section: &str) -> HangingRun {
    let config = format!("{section}\ncommand = \"\"\"{}\"\"\"\n", stubborn(place));
    let config = place.file("allstop.toml", config);
    let run = place.run_script(ASKS).arg("--config").arg(config);
    HangingRun::from(run.args(args).arg("hello").start()).once_there(&place.path("ready"))
}

#[test]
fn a_hook() {
    let begin = |place: &Place, args: &str| {
        command_of_config(place, args, "[[hooks]]\non = \"turn_start\"")
    };
    Stall::new(begin).item(PROCESS).check(&RunStopMethod::ALL);
}

#[test]
fn a_hook_of_a_call() {
    let begin = |place: &Place, args: &str| {
        command_of_config(place, args, "[[hooks]]\non = \"tool_start\"")
    };
    Stall::new(begin).item(PROCESS).check(&RunStopMethod::ALL);
}

/// The first turn waits for this hook, so a stop of the turn also covers the hook.
#[test]
fn a_hook_before_the_first_turn() {
    let begin = |place: &Place, args: &str| {
        command_of_config(place, args, "[[hooks]]\non = \"session_start\"")
    };
    Stall::new(begin).item(PROCESS).check(&RunStopMethod::ALL);
}

/// The stop comes between two turns. The first turn is committed, and the second turn ends at its start. The receipt
/// lists the hook that ran between them.
#[test]
fn a_hook_between_two_turns() {
    let begin = |place: &Place, args: &str| {
        let args = format!("{args} --then second");
        command_of_config(place, &args, "[[hooks]]\non = \"turn_end\"")
    };
    Stall::new(begin).item(PROCESS).check(&RunStopMethod::ALL);
}

/// The session is already closed when this hook runs.
#[test]
fn a_hook_after_the_session() {
    let begin = |place: &Place, args: &str| {
        command_of_config(place, args, "[[hooks]]\non = \"session_end\"")
    };
    let stall = Stall::new(begin).ends(ExpectedEnd::Committed).item(PROCESS);
    stall.check(&RunStopMethod::ALL);
}

/// The turn has already ended when this hook runs, and the stop does not change the end of the turn.
#[test]
fn a_hook_after_the_turn() {
    let begin =
        |place: &Place, args: &str| command_of_config(place, args, "[[hooks]]\non = \"turn_end\"");
    let stall = Stall::new(begin).ends(ExpectedEnd::Committed).item(PROCESS);
    stall.check(&RunStopMethod::ALL);
}

#[test]
fn a_guardrail() {
    let begin = |place: &Place, args: &str| {
        command_of_config(place, args, "[[guardrails]]\non = \"input\"")
    };
    Stall::new(begin).item(PROCESS).check(&RunStopMethod::ALL);
}

#[test]
fn background_work_that_is_waited_for() {
    let begin = |place: &Place, args: &str| {
        let yaml = format!(
            "replies: [{{calls: [{{tool: shell, arguments: {{background: true, command: \"{}\"}}}}]}}, {{text: done}}]",
            stubborn(place)
        );
        let run = place
            .run_script(&yaml)
            .args(args)
            .args("--wait-background hello");
        let hanging = HangingRun::from(run.start());
        hanging.running.wait_stdout("turn_ended");
        hanging.once_there(&place.path("ready"))
    };
    Stall::new(begin)
        .streaming()
        .ends(ExpectedEnd::Either)
        .check(&RunStopMethod::ALL);
}
