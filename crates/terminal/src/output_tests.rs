//! Tests with readers that do not read, have gone, or have no room for output.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::*;
use crate::test_screen::TestScreen;
use crate::{InputLine, OutputPriority, Style};

/// Long enough for a machine under load; a passing test never reaches this limit.
const LONG: Duration = Duration::from_secs(20);
/// Short wait for tests that show that output is blocked.
const SHORT: Duration = Duration::from_millis(50);

fn pipe() -> (File, File) {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = |fd: OwnedFd| File::from(fd);
    (file(reader.into()), file(writer.into()))
}

fn read_all(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn read_aside(file: File) -> std::thread::JoinHandle<String> {
    #[expect(clippy::disallowed_methods, reason = "a reader beside the test")]
    std::thread::spawn(move || read_all(file))
}

#[test]
fn what_is_pushed_is_written_in_order() {
    let ((out, stdout), (err, stderr)) = (pipe(), pipe());
    let output = OutputStreams::new(stdout, stderr).unwrap();
    output.stdout().answer("a", OutputPriority::IfRoom);
    output.stdout().lines("b", OutputPriority::Required);
    output.stdout().lines("c", OutputPriority::Last);
    output.stderr().lines("note", OutputPriority::Required);
    let flushed = output.flush(LONG);
    assert_eq!(flushed.stdout, FlushResult::Flushed);
    assert_eq!(flushed.stderr, FlushResult::Flushed);
    drop(output);
    assert_eq!(read_all(out), "a\nb\nc\n");
    assert_eq!(read_all(err), "note\n");
}

#[test]
fn one_pipe_for_both_keeps_their_order() {
    let (reader, stdout) = pipe();
    let stderr = stdout.try_clone().unwrap();
    let output = OutputStreams::new(stdout, stderr).unwrap();
    for number in 0..50 {
        output
            .stdout()
            .answer(&format!("{number} "), OutputPriority::Required);
        output.stderr().lines("-", OutputPriority::Required);
    }
    output.flush(LONG);
    drop(output);
    let expected: String = (0..50)
        .flat_map(|number| [number.to_string(), " \n-\n".to_owned()])
        .collect();
    assert_eq!(read_all(reader), expected);
}

#[test]
fn unread_pipe_blocks_no_process() {
    let ((out, stdout), (err, stderr)) = (pipe(), pipe());
    let output = OutputStreams::new(stdout, stderr).unwrap();
    let mut taken = 0;
    while output
        .stdout()
        .answer(&"x".repeat(1_000), OutputPriority::IfRoom)
    {
        taken += 1;
        assert!(taken < 1_000, "what waits is bounded");
    }
    assert!(output.stdout().answer("answer", OutputPriority::Required));
    while output
        .stdout()
        .answer(&"y".repeat(100_000), OutputPriority::Required)
    {
        taken += 1;
        assert!(taken < 2_000, "even what ought to be kept is bounded");
    }
    assert!(output.stdout().answer("envelope\n", OutputPriority::Last));
    output.stderr().lines("receipt", OutputPriority::Last);
    let began = Instant::now();
    let flushed = output.flush(SHORT);
    assert_eq!(flushed.stdout, FlushResult::Blocked);
    assert_eq!(
        flushed.stderr,
        FlushResult::Flushed,
        "not held up by the other"
    );
    assert!(began.elapsed() < LONG);
    // When the reader reads again, no accepted text is missing, and the text that was pushed last comes last.
    let reading = read_aside(out);
    assert_eq!(output.flush(LONG).stdout, FlushResult::Flushed);
    drop(output);
    let read = reading.join().unwrap();
    assert!(read.ends_with("envelope\n"));
    assert!(read.contains("answer"));
    assert_eq!(read_all(err), "receipt\n");
}

#[test]
fn a_pipe_that_is_closed_is_no_panic() {
    let ((out, stdout), (_err, stderr)) = (pipe(), pipe());
    drop(out);
    let output = OutputStreams::new(stdout, stderr).unwrap();
    output.stdout().answer("a", OutputPriority::Required);
    let closed = FlushResult::Closed(std::io::ErrorKind::BrokenPipe);
    assert_eq!(output.flush(LONG).stdout, closed);
    assert!(
        output.stdout().answer("b", OutputPriority::Required),
        "nobody misses it"
    );
    assert_eq!(output.flush(LONG).stdout, closed);
}

#[test]
fn full_disk_is_reported() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let (_err, stderr) = pipe();
    let output = OutputStreams::new(full(), stderr).unwrap();
    output.stdout().answer("a", OutputPriority::Last);
    let flushed = output.flush(LONG);
    assert_eq!(
        flushed.stdout,
        FlushResult::Closed(std::io::ErrorKind::StorageFull)
    );
    assert_eq!(flushed.stderr, FlushResult::Flushed);
}

#[test]
fn a_non_blocking_pipe_gets_all_of_it() {
    let ((out, stdout), (_err, stderr)) = (pipe(), pipe());
    rustix::io::ioctl_fionbio(&stdout, true).unwrap();
    let output = OutputStreams::new(stdout, stderr).unwrap();
    let text = "z".repeat(1_000_000);
    assert!(output.stdout().answer(&text, OutputPriority::Last));
    let reading = read_aside(out);
    assert_eq!(output.flush(LONG).stdout, FlushResult::Flushed);
    drop(output);
    assert!(reading.join().unwrap() == text);
}

#[test]
fn typed_text_stays_whole_below_a_streamed_answer() {
    let mut screen = TestScreen::open(8, 12);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let typed = |text: &str| {
        let entry = InputLine {
            above: vec!["  waits: next".into()],
            prefix: "> ".into(),
            text: text.to_owned(),
            cursor: text.len(),
            style: Style::default(),
            narrow: None,
            is_echoed: false,
        };
        output.stdout().show_input_line(Some(entry));
    };
    // Draws one letter at a time, over several rows of the terminal; twelve letters fill a row exactly.
    let answer = "The answer, word by word, and more";
    for (at, letter) in answer.char_indices() {
        typed(&answer[..at / 4]);
        output
            .stdout()
            .answer(letter.encode_utf8(&mut [0; 4]), OutputPriority::Required);
        // The emulator's contents join wrapped rows into one line, so the comparison ignores blanks and line ends.
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        let shows = format!("{} waits:... > {}", &answer[..=at], &answer[..at / 4]);
        screen.wait_until(|screen| letters(screen) == letters(&shows));
    }
    output.stderr().lines("a note", OutputPriority::Required);
    screen.wait_until(|screen| screen.contains("and more\na note\n  waits:...\n> "));
}

/// On a terminal without a cursor, the prefix of a question is written once, and again after other output.
#[test]
fn echoed_input_line_is_written_without_control_sequences() {
    let mut screen = TestScreen::open(8, 40);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let queue = output.stdout();
    let ask = |prefix: &str| {
        queue.show_input_line(Some(InputLine {
            above: Vec::new(),
            prefix: prefix.into(),
            text: String::new(),
            cursor: 0,
            style: Style::default(),
            narrow: None,
            is_echoed: true,
        }));
    };
    ask("yes? ");
    screen.wait_for("yes?");
    ask("yes? ");
    queue.lines("a note", OutputPriority::Required);
    screen.wait_until(|screen| screen == "yes? \na note\nyes? ");
    screen.type_keys("y\n");
    screen.wait_until(|screen| screen.ends_with("yes? y"));
    queue.end_echoed_line();
    queue.lines("answered", OutputPriority::Required);
    let written = screen.read_until_flushed(&output);
    assert_eq!(written, "yes? \na note\nyes? y\nanswered\n");
}
