//! Stalls of a chat. In contrast to a run, a chat prints no envelope (JSON result) and has no deadline.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::stall::{HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::fault::Fault;
use crate::support::terminal::Terminal;
use crate::support::{Allstop, Place};

/// Ways to end a chat that reads from a pipe.
const STOP_METHODS: [RunStopMethod; 4] = [
    RunStopMethod::CtrlC,
    RunStopMethod::CtrlCTwice,
    RunStopMethod::Sigterm,
    RunStopMethod::Sighup,
];

/// Number of concurrent pieces of background work.
const WORKS: usize = 5;

fn chat<'a>(place: &'a Place, model: &str, args: &str) -> Allstop<'a> {
    let chat = place
        .allstop()
        .args("chat --yes --store")
        .arg(place.store());
    chat.arg("--model").arg(model).args(args)
}

/// A chat that reads one line from a pipe. The pipe stays open.
fn piped(command: Allstop<'_>, line: &str) -> HangingRun {
    let mut running = command.stdin(Stdio::piped()).start();
    let mut stdin = running.take_stdin().expect("a pipe");
    // An error is ignored, because the chat may already have ended.
    let _taken = stdin.write_all(line.as_bytes());
    HangingRun::from(running).holding(stdin)
}

/// Script of a turn with a call of this command.
fn calling(command: &str) -> String {
    format!(
        "replies: [{{calls: [{{tool: shell, arguments: {{command: \"{command}\"}}}}]}}, {{text: done}}]"
    )
}

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a fifo");
}

#[test]
fn it_waits_for_a_line() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "read pipe: 0ms");
        let command = chat(place, &place.script("replies: [{text: Hello.}]"), args);
        piped(fault.below(command), "").once_hit(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn its_configuration_is_a_fifo() {
    let begin = |place: &Place, args: &str| {
        let config = place.path("allstop.toml");
        fifo(&config);
        let fault = Fault::new(place, "open allstop.toml 0ms");
        let command = chat(place, "any", args).arg("--config").arg(config);
        piped(fault.below(command), "").once_hit(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn its_script_is_a_fifo() {
    let begin = |place: &Place, args: &str| {
        let script = place.path("script.yaml");
        fifo(&script);
        let fault = Fault::new(place, "open script.yaml 0ms");
        let command = chat(place, &format!("script:{}", script.display()), args);
        piped(fault.below(command), "").once_hit(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn its_store_does_not_open() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "open store.db hang");
        let command = chat(place, &place.script("replies: [{text: Hello.}]"), args);
        piped(fault.below(command), "").once_hit(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn its_call_is_deaf() {
    let begin = |place: &Place, args: &str| {
        let ready = place.path("ready");
        let deaf = format!(
            "trap '' TERM; setsid sleep 600 & sleep 600 & touch {}; wait",
            ready.display()
        );
        piped(chat(place, &place.script(&calling(&deaf)), args), "go\n").once_there(&ready)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn its_disk_hangs_below_a_call() {
    let begin = |place: &Place, args: &str| {
        let ready = place.path("ready");
        let rules = [
            "sync", "write", "unlink", "rmdir", "open", "truncate", "mkdir",
        ]
        .map(|call| format!("{call} store.db hang when={}", ready.display()));
        let fault = Fault::new(place, &rules.join("\n"));
        let script = place.script(&calling(&format!("touch {}; sleep 600", ready.display())));
        piped(fault.below(chat(place, &script, args)), "go\n")
            .once_there(&ready)
            .with(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

#[test]
fn commands_are_unreadable_in_proc() {
    let begin = |place: &Place, args: &str| {
        let ready = place.path("ready");
        let rule = |file: &str| format!("open /{file} hang when={}", ready.display());
        let fault = Fault::new(place, &format!("{}\n{}", rule("cmdline"), rule("environ")));
        let deaf = format!(
            "trap '' TERM; setsid sleep 600 & sleep 600 & touch {}; wait",
            ready.display()
        );
        piped(
            fault.below(chat(place, &place.script(&calling(&deaf)), args)),
            "go\n",
        )
        .once_there(&ready)
        .with(fault)
    };
    Stall::new(begin).unseen("").check(&STOP_METHODS);
}

/// A chat that has to keep five pieces of background work, although the disk accepts no more writes.
#[test]
fn it_keeps_background_work_on_a_disk_that_hangs() {
    let begin = |place: &Place, args: &str| {
        let (ready, said) = (place.path("ready"), place.path("said"));
        let fault = Fault::new(
            place,
            &format!("sync store.db hang when={}", ready.display()),
        );
        // Each call is different, because five equal calls would count as a loop and end the turn.
        let work = |number| {
            format!("{{tool: shell, arguments: {{background: true, command: sleep 60{number}}}}}")
        };
        let works: Vec<String> = (0..WORKS).map(work).collect();
        let works = works.join(", ");
        let script = format!(
            "replies: [{{calls: [{works}]}}, {{text: They run.}}, {{calls: [{{tool: shell, arguments: {{command: 'touch {}; sleep 600'}}}}]}}]",
            ready.display()
        );
        let output = std::fs::File::create(&said).expect("a file in the place");
        let command = chat(place, &place.script(&script), args).arg("--keep-background");
        let hanging = piped(fault.below(command).stdout(output), "start\nwait\n");
        hanging.once_there(&ready).with(fault)
    };
    Stall::new(begin)
        .unseen("")
        .not_quiet()
        .no_word_of("left after")
        .check(&STOP_METHODS);
}

/// The terminal of the user hangs. In a chat at a terminal, Ctrl-C is a key and not a signal.
#[test]
fn its_terminal_shows_nothing() {
    let begin = |place: &Place, args: &str| {
        let terminal = Terminal::unread();
        let ready = place.path("ready");
        let script = format!(
            "replies: [{{text: '{}', calls: [{{tool: shell, arguments: {{command: 'touch {}; sleep 600'}}}}]}}]",
            "word ".repeat(60_000),
            ready.display()
        );
        let command = chat(place, &place.script(&script), args).arg("go");
        let command = command.on_screen(terminal.line()).env("TERM", "xterm");
        let running = command.start();
        HangingRun::from(running)
            .holding(terminal)
            .once_there(&ready)
    };
    Stall::new(begin)
        .unseen("")
        .check(&[RunStopMethod::Sigterm, RunStopMethod::Sighup]);
}
