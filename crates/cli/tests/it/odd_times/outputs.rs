//! Runs whose outputs have no reader: a closed stream, a full disk, a blocked pipe.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::pipe;

use crate::support::terminal::Terminal;
use crate::support::{Ended, FACT_MAX, Place, Signal, eventually};

/// Bytes of a long answer: more than the buffer of a pipe can hold.
const LONG: usize = 300_000;

fn long_answer() -> String {
    format!("replies: [{{text: '{}'}}]", "word ".repeat(LONG / 5))
}

/// Script with a long answer, and a call that runs until it is stopped.
fn endless() -> String {
    let long = "word ".repeat(LONG / 5);
    format!(
        "replies: [{{text: '{long}', calls: [{{tool: shell, arguments: {{command: touch ready; sleep 600}}}}]}}]"
    )
}

/// The write end of a pipe whose reader is closed.
fn closed_pipe() -> OwnedFd {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer
}

#[track_caller]
fn check_no_panic(ended: &Ended) {
    assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
    assert!(!ended.stderr.contains("internal error"), "{ended:#?}");
}

#[test]
fn standard_output_is_a_closed_pipe() {
    for args in ["", "--json", "--stream-json"] {
        let place = Place::new();
        let run = place.run_script(&long_answer()).args(args).arg("hello");
        let ended = run.stdout(closed_pipe()).end();
        check_no_panic(&ended);
        assert_eq!(
            ended.code, 0,
            "who closes a pipe has read enough: {ended:#?}"
        );
    }
    let place = Place::new();
    let list = place.sessions().arg("list").stdout(closed_pipe()).end();
    check_no_panic(&list);
    let completions = place
        .allstop()
        .args("completions bash")
        .stdout(closed_pipe())
        .end();
    check_no_panic(&completions);
    let help = place.allstop().arg("--help").stdout(closed_pipe()).end();
    check_no_panic(&help);
}

#[test]
fn standard_output_is_a_full_disk() {
    for args in ["", "--json", "--stream-json"] {
        let place = Place::new();
        let full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("it is there");
        let run = place
            .run_script("replies: [{text: Hello.}]")
            .args(args)
            .arg("hello");
        let ended = run.stdout(full).end();
        check_no_panic(&ended);
        assert_eq!(ended.code, 1, "the answer is lost: {ended:#?}");
        assert!(ended.stderr.contains("standard output"), "{ended:#?}");
    }
}

#[test]
fn standard_error_is_closed() {
    for (args, code) in [
        ("", 0),
        ("--json", 0),
        ("--no-such-flag", 2),
        ("--session none", 2),
    ] {
        let place = Place::new();
        let run = place
            .run_script("replies: [{text: Hello.}]")
            .args(args)
            .arg("hello");
        let ended = run.redirected("2>&-").end();
        check_no_panic(&ended);
        assert_eq!(ended.code, code, "{ended:#?}");
        if code == 0 {
            assert!(ended.stdout.contains("Hello."), "{ended:#?}");
        }
    }
}

#[test]
fn all_streams_are_closed() {
    let place = Place::new();
    let run = place.run_script(
        "replies: [{calls: [{tool: shell, arguments: {command: echo x > seen}}]}, {text: Hello.}]",
    );
    let ended = run.arg("hello").redirected("<&- >&- 2>&-").end();
    assert!(place.work().join("seen").exists(), "{ended:#?}");
    let shown = place.sessions().args("list --json").end().ok();
    assert!(
        shown.stdout.contains("\"last_stop_reason\":\"completed\""),
        "{shown:#?}"
    );
    // The file of the store must not get the descriptor number of a closed stream: then output would be written into
    // the store.
    let store = std::fs::read(place.store()).expect("a store");
    assert!(store.starts_with(b"SQLite format 3\0"));
}

/// A reader of the output, such as a pager, may pause for a long time.
#[test]
fn a_reader_that_pauses_gets_all_of_it() {
    const PAUSE: Duration = Duration::from_secs(4);
    let running = ["", "--json", "--stream-json"].map(|args| {
        let place = Place::new();
        let (reader, writer) = pipe().expect("a pipe");
        let run = place.run_script(&long_answer()).args(args).arg("hello");
        let running = run.stdout(writer).start();
        (place, File::from(reader), running)
    });
    for (at, (_place, mut reader, running)) in running.into_iter().enumerate() {
        if at == 0 {
            assert!(!running.ends_within(PAUSE), "the reader pauses");
        }
        let mut answer = String::new();
        reader.read_to_string(&mut answer).expect("text");
        let ended = running.end(FACT_MAX).ok();
        assert!(!ended.stderr.contains("lost"), "{ended:#?}");
        assert!(answer.trim_end().ends_with(['d', '}']), "cut off");
        assert!(answer.len() >= LONG, "{} bytes", answer.len());
    }
}

/// A signal ends the wait for a reader of the output, and the lost output is reported.
#[test]
fn a_signal_ends_the_wait_for_a_reader() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        let (reader, writer) = pipe().expect("a pipe");
        let run = place.run_script(&long_answer()).arg("hello").stdout(writer);
        let running = run.start();
        // Wait until the turn is over. Then only the output is pending, so the signal stops no work.
        eventually("the answer is in the log", || {
            let list = place.sessions().args("list --json").end();
            list.stdout
                .contains("\"last_stop_reason\":\"completed\"")
                .then_some(())
        });
        assert!(!running.ends_within(Duration::from_millis(300)));
        let ended = running.end_by(signal);
        check_no_panic(&ended);
        assert_eq!(ended.code, 1, "{ended:#?}");
        let said = "error: the reader of standard output stopped reading: the rest of the output is lost\n";
        assert!(ended.stderr.contains(said), "{ended:#?}");
        drop(reader);
    }
}

mod alone {
    use super::*;

    #[test]
    fn nobody_reads_while_it_is_stopped() {
        const GRACE: Duration = Duration::from_millis(500);
        for (args, stderr_too) in [("", false), ("--stream-json", false), ("", true)] {
            let place = Place::new();
            let (reader, writer) = pipe().expect("a pipe");
            let mut run = place
                .run_script(&endless())
                .args("--grace 500ms")
                .args(args);
            if stderr_too {
                run = run.stderr(writer.try_clone().expect("it can be duplicated"));
            }
            let running = run.arg("hello").stdout(writer).start();
            let ready = place.work().join("ready");
            eventually("the call", || ready.exists().then_some(()));
            let ended = running.end_by(Signal::INT);
            println!("{args} {stderr_too}: after {:?}", ended.since_signal());
            check_no_panic(&ended);
            assert_eq!(ended.code, 130, "{ended:#?}");
            place.assert_nothing_runs();
            assert!(
                ended.since_signal() < GRACE + Duration::from_secs(1),
                "{ended:#?}"
            );
            drop(reader);
        }
    }

    #[test]
    fn the_terminal_hangs() {
        const GRACE: Duration = Duration::from_millis(500);
        let place = Place::new();
        let terminal = Terminal::unread();
        let run = place.run_script(&endless()).args("--grace 500ms hello");
        let run = run.on_screen(terminal.line());
        let running = run.env("TERM", "xterm").start();
        let ready = place.work().join("ready");
        eventually("the call", || ready.exists().then_some(()));
        let ended = running.end_by(Signal::INT);
        println!("after {:?}", ended.since_signal());
        assert_eq!(ended.code, 130, "{ended:#?}");
        place.assert_nothing_runs();
        assert!(
            ended.since_signal() < GRACE + Duration::from_secs(1),
            "{ended:#?}"
        );
    }

    #[test]
    fn a_slow_reader_gets_all_of_it() {
        let place = Place::new();
        let (reader, writer) = pipe().expect("a pipe");
        let run = place.run_script(&long_answer()).arg("hello").stdout(writer);
        let running = run.start();
        let mut answer = String::new();
        File::from(reader)
            .read_to_string(&mut answer)
            .expect("text");
        let ended = running.end(FACT_MAX).ok();
        assert_eq!(answer.trim_end().len(), LONG - 1, "{ended:#?}");
    }
}
