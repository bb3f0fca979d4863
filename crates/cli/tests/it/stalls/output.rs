//! Stalls of readers: a full pipe, and a terminal that shows nothing.

use std::os::fd::OwnedFd;

use rustix::pipe::pipe;

use super::stall::{HangingRun, Stall};
use super::stop_method::RunStopMethod;
use crate::support::Place;
use crate::support::terminal::Terminal;

/// Bytes of a long answer: more than the buffer of a pipe can hold.
const LONG_BYTES: usize = 300_000;

/// Script with a long answer, and a call that runs until it is stopped.
fn endless(place: &Place) -> String {
    format!(
        "replies: [{{text: '{}', calls: [{{tool: shell, arguments: {{command: 'touch {}; sleep 600'}}}}]}}]",
        "word ".repeat(LONG_BYTES / 5),
        place.path("ready").display()
    )
}

/// A pipe whose buffer is full.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be non-blocking");
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe can be blocking");
    (reader, writer)
}

/// A run whose standard output has no reader. So the test gets no envelope.
fn unread(place: &Place, args: &str, stderr_too: bool) -> HangingRun {
    let (reader, writer) = pipe().expect("a pipe");
    let mut run = place.run_script(&endless(place)).args(args).arg("hello");
    if stderr_too {
        run = run.stderr(writer.try_clone().expect("it can be duplicated"));
    }
    let running = run.stdout(writer).start();
    HangingRun::from(running)
        .holding(reader)
        .once_there(&place.path("ready"))
}

#[test]
fn nobody_reads_the_events() {
    let begin = |place: &Place, args: &str| unread(place, args, false);
    Stall::new(begin)
        .unseen("--stream-json")
        .check(&RunStopMethod::ALL);
}

#[test]
fn nobody_reads_the_answer() {
    let begin = |place: &Place, args: &str| unread(place, args, false);
    Stall::new(begin).unseen("").check(&RunStopMethod::ALL);
}

#[test]
fn nobody_reads_anything() {
    let begin = |place: &Place, args: &str| unread(place, args, true);
    Stall::new(begin).unseen("").check(&RunStopMethod::ALL);
}

/// The test reads the envelope from standard output, but does not read standard error.
#[test]
fn nobody_reads_standard_error() {
    let begin = |place: &Place, args: &str| {
        let (reader, writer) = full_pipe();
        let run = place.run_script(&endless(place)).args(args).arg("hello");
        let running = run.env("ALLSTOP_LOG", "debug").stderr(writer).start();
        HangingRun::from(running)
            .holding(reader)
            .once_there(&place.path("ready"))
    };
    Stall::new(begin).check(&RunStopMethod::ALL);
}

#[test]
fn the_terminal_shows_nothing() {
    let begin = |place: &Place, args: &str| {
        let terminal = Terminal::unread();
        let run = place.run_script(&endless(place)).args(args).arg("hello");
        let run = run.on_screen(terminal.line()).env("TERM", "xterm");
        let running = run.start();
        HangingRun::from(running)
            .holding(terminal)
            .once_there(&place.path("ready"))
    };
    Stall::new(begin).unseen("").check(&RunStopMethod::ALL);
}
