//! Stalls before the session is open: files, the store, MCP servers, standard input.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::stall::{HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::Place;
use crate::support::fault::Fault;

/// Script of a model that answers with one word.
const HELLO: &str = "replies: [{text: Hello.}]";

/// A named pipe without a writer. It blocks a process that opens it for reading.
fn fifo(place: &Place, name: &str) -> PathBuf {
    let path = place.path(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a fifo");
    path
}

/// A run with an injected fault. Waits until the fault has hit a system call.
fn below(place: &Place, rule: &str, args: &str, more: &[&str]) -> HangingRun {
    let fault = Fault::new(place, rule);
    let mut run = place.run_script(HELLO).args(args);
    for arg in more {
        run = run.arg(arg);
    }
    HangingRun::from(fault.below(run.arg("hello")).start()).once_hit(fault)
}

fn config(place: &Place, args: &str, config: &str) -> HangingRun {
    let config = place.file("allstop.toml", config);
    let run = place.run_script(HELLO).arg("--config").arg(config);
    HangingRun::from(run.args(args).arg("hello").start())
}

/// The thread that reads the configuration cannot be forced, so the receipt may list this thread as still running.
#[test]
fn the_configuration_is_a_fifo() {
    let begin = |place: &Place, args: &str| {
        let config = fifo(place, "allstop.toml");
        let config = config.to_str().expect("text");
        below(place, "open allstop.toml 0ms", args, &["--config", config])
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn the_script_is_a_fifo() {
    let begin = |place: &Place, args: &str| {
        let model = format!("script:{}", fifo(place, "script.yaml").display());
        let fault = Fault::new(place, "open script.yaml 0ms");
        let run = place.run().arg("--model").arg(model).args(args);
        HangingRun::from(fault.below(run.arg("hello")).start()).once_hit(fault)
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn the_system_prompt_is_a_fifo() {
    let begin = |place: &Place, args: &str| {
        let prompt = fifo(place, "prompt.md");
        let config = format!("system_prompt_file = {prompt:?}\n");
        let config = place.file("allstop.toml", config);
        let config = config.to_str().expect("text");
        below(place, "open prompt.md 0ms", args, &["--config", config])
    };
    Stall::new(begin).not_quiet().check(&RunStopMethod::ALL);
}

#[test]
fn a_prompt_never_comes_from_standard_input() {
    let begin = |place: &Place, args: &str| {
        let fault = Fault::new(place, "read pipe: 0ms");
        let run = place.run_script(HELLO).args(args).arg("-");
        let mut running = fault.below(run.stdin(Stdio::piped())).start();
        let mut stdin = running.take_stdin();
        let pipe = stdin.as_mut().expect("it is piped");
        pipe.write_all(b"hel").expect("it reads");
        HangingRun::from(running).holding(stdin).once_hit(fault)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn the_store_does_not_open() {
    Stall::new(|place, args| below(place, "open store.db hang", args, &[]))
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_lock_of_the_session_does_not_open() {
    Stall::new(|place, args| below(place, "open store.db.locks hang", args, &[]))
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_store_cannot_be_read() {
    Stall::new(|place, args| below(place, "read store.db hang", args, &[]))
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_store_takes_no_session() {
    Stall::new(|place, args| below(place, "sync store.db hang", args, &[]))
        .check(&RunStopMethod::ALL);
}

#[test]
fn the_folder_for_output_cannot_be_made() {
    let begin = |place: &Place, args: &str| below(place, "mkdir store.db.output hang", args, &[]);
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn proc_lacks_the_identity_of_this_process() {
    Stall::new(|place, args| below(place, "open /stat$ hang", args, &[]))
        .not_quiet()
        .check(&RunStopMethod::ALL);
}

#[test]
fn an_mcp_server_never_answers() {
    let begin = |place: &Place, args: &str| {
        let ready = place.path("ready");
        let section = format!(
            "[mcp.servers.deaf]\ncommand = \"sh\"\nhandshake_timeout = \"60s\"\nargs = [\"-c\", \"trap '' TERM; touch {}; while :; do sleep 0.1; done\"]\n",
            ready.display()
        );
        config(place, args, &section).once_there(&ready)
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

/// The deadline counts from the start of the process: it does not begin again at each wait of the start.
#[test]
fn one_deadline_covers_reading_and_servers() {
    let begin = |place: &Place, args: &str| {
        let config = place.file(
            "allstop.toml",
            "[mcp.servers.deaf]\ncommand = \"sleep\"\nargs = [\"600\"]\nhandshake_timeout = \"60s\"\n",
        );
        let config = config.to_str().expect("text");
        below(
            place,
            "open allstop.toml 700ms",
            args,
            &["--config", config],
        )
    };
    Stall::new(begin).check(&[RunStopMethod::Timeout]);
}
