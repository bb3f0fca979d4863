//! Runs at a terminal, with the test as the user at the keyboard.

use crate::support::terminal::Terminal;
use crate::support::{FACT_MAX, Place, Running, eventually};

const CTRL_C: &str = "\x03";

/// A script that calls the same shell command twice.
const TWICE: &str = "
replies:
  - calls: [{tool: shell, arguments: {command: echo x >> ran}}]
  - calls: [{tool: shell, arguments: {command: echo x >> ran}}]
  - text: Done.
";

fn sit_down(place: &Place, terminal: &Terminal, script: &str, args: &str) -> Running {
    let run = place.run_unasked().arg("--model").arg(place.script(script));
    let run = run.args(args).arg("hello").env("TERM", "xterm");
    run.on_terminal(terminal.line()).start()
}

/// Number of times that the shell command has run.
fn runs(place: &Place) -> usize {
    let ran = std::fs::read_to_string(place.work().join("ran"));
    ran.unwrap_or_default().lines().count()
}

#[test]
fn a_question_is_answered_by_a_line() {
    for (keys, ran) in [
        (["y\n", "n\n"], 1),
        (["yes\n", "y\n"], 2),
        (["n\n", "no\n"], 0),
    ] {
        let place = Place::new();
        let terminal = Terminal::new();
        let running = sit_down(&place, &terminal, TWICE, "");
        for (count, line) in keys.iter().enumerate() {
            terminal.wait_times("[y]es", count + 1);
            terminal.type_keys(line);
        }
        running.end(FACT_MAX).ok();
        assert_eq!(runs(&place), ran, "{}", terminal.shown());
    }
}

/// `--quiet` hides calls and notes, but a user can still answer.
#[test]
fn quiet_run_shows_only_the_question() {
    let place = Place::new();
    let terminal = Terminal::new();
    let running = sit_down(&place, &terminal, TWICE, "--quiet");
    terminal.wait("[y]es");
    terminal.type_keys("a\n");
    running.end(FACT_MAX).ok();
    assert_eq!(runs(&place), 2, "{}", terminal.shown());
    let shown = terminal.all_shown();
    assert!(!shown.contains("to continue:"), "{shown}");
    assert!(!shown.contains("step 1"), "{shown}");
}

#[test]
fn always_is_asked_once_and_nonsense_is_asked_again() {
    let place = Place::new();
    let terminal = Terminal::new();
    let running = sit_down(&place, &terminal, TWICE, "");
    terminal.wait("[y]es");
    terminal.type_keys("perhaps\n");
    terminal.wait("answer y, a, n or n REASON");
    terminal.type_keys("a\n");
    running.end(FACT_MAX).ok();
    assert_eq!(runs(&place), 2, "{}", terminal.shown());
    let shown = terminal.all_shown();
    assert_eq!(shown.matches("? Allow").count(), 1, "{shown}");
    assert_eq!(shown.matches("yes, always").count(), 1, "{shown}");
}

#[test]
fn ctrl_c_at_a_question_withdraws_it() {
    let place = Place::new();
    let terminal = Terminal::new();
    let running = sit_down(&place, &terminal, TWICE, "");
    terminal.wait_times("[y]es", 1);
    terminal.type_keys(CTRL_C);
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{}", terminal.shown());
    terminal.wait_times("withdrawn", 1);
    terminal.wait_times("stopped by you (Ctrl-C)", 1);
    assert_eq!(runs(&place), 0);
}

/// The screen confirms Ctrl-C at once, even while work still runs that ignores the stop.
#[test]
fn ctrl_c_is_answered_before_what_resists_has_ended() {
    let place = Place::new();
    let terminal = Terminal::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: 'trap \"\" TERM; touch ready; while :; do sleep 1; done'}}]}]";
    let running = sit_down(&place, &terminal, script, "--yes --grace 30s");
    let ready = place.work().join("ready");
    eventually("the call", || ready.exists().then_some(()));
    terminal.type_keys(CTRL_C);
    terminal.wait_times("Ctrl-C forces now", 1);
    assert!(
        !running.ends_within(std::time::Duration::from_millis(200)),
        "it resists"
    );
    terminal.type_keys(CTRL_C);
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{}", terminal.shown());
    terminal.wait_times("SIGKILL", 1);
    place.assert_nothing_runs();
}

#[test]
fn ctrl_c_while_background_work_is_waited_for() {
    let place = Place::new();
    let terminal = Terminal::new();
    let script = "replies: [{calls: [{tool: shell, arguments: {command: sleep 600, background: true}}]}, {text: Done.}]";
    let running = sit_down(&place, &terminal, script, "--yes --wait-background");
    terminal.wait_times("waiting for background work", 1);
    terminal.type_keys(CTRL_C);
    let ended = running.end(FACT_MAX);
    assert_eq!(ended.code, 130, "{}", terminal.shown());
    assert_eq!(ended.stdout, "Done.\n");
    place.assert_nothing_runs();
}

/// Regression: a run in the background denied its questions without a word.
#[test]
fn a_question_in_the_background_waits_for_the_foreground() {
    let place = Place::new();
    let terminal = Terminal::new();
    let shell = "set -m; \"$0\" \"$@\" & until [ -e go ]; do sleep 0.05; done; fg";
    let run = place.run_unasked().arg("--model").arg(place.script(TWICE));
    let run = run.arg("hello").env("TERM", "xterm");
    let running = run.by_script(shell).on_terminal(terminal.line()).start();
    terminal.wait("the question waits: `fg` brings Allstop to the foreground");
    assert!(!terminal.shown().contains("[y]es"), "{}", terminal.shown());
    std::fs::write(place.work().join("go"), "").expect("the folder is writable");
    terminal.wait_times("[y]es", 1);
    terminal.type_keys("a\r");
    running.end(FACT_MAX).ok();
    assert_eq!(runs(&place), 2, "{}", terminal.shown());
}
