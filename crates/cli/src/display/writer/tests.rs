//! Readers that do not read, have gone, or have no room.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use super::*;

/// Long enough for a machine under load, and never reached by a test that passes.
const LONG: Duration = Duration::from_secs(20);
/// Short enough to wait for in a test that shows that something is blocked.
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
    let output = Output::new(stdout, stderr).unwrap();
    output.stdout().answer("a", Keep::IfRoom);
    output.stdout().lines("b", Keep::Must);
    output.stdout().lines("c", Keep::Last);
    output.stderr().lines("note", Keep::Must);
    let flushed = output.flush(LONG);
    assert_eq!(flushed.stdout, Flush::Flushed);
    assert_eq!(flushed.stderr, Flush::Flushed);
    drop(output);
    assert_eq!(read_all(out), "a\nb\nc\n");
    assert_eq!(read_all(err), "note\n");
}

#[test]
fn one_pipe_for_both_keeps_their_order() {
    let (reader, stdout) = pipe();
    let stderr = stdout.try_clone().unwrap();
    let output = Output::new(stdout, stderr).unwrap();
    for number in 0..50 {
        output.stdout().answer(&format!("{number} "), Keep::Must);
        output.stderr().lines("-", Keep::Must);
    }
    output.flush(LONG);
    drop(output);
    let expected: String = (0..50)
        .flat_map(|number| [number.to_string(), " \n-\n".to_owned()])
        .collect();
    assert_eq!(read_all(reader), expected);
}

#[test]
fn a_pipe_that_nobody_reads_blocks_nobody() {
    let ((out, stdout), (err, stderr)) = (pipe(), pipe());
    let output = Output::new(stdout, stderr).unwrap();
    let mut taken = 0;
    while output.stdout().answer(&"x".repeat(1_000), Keep::IfRoom) {
        taken += 1;
        assert!(taken < 1_000, "what waits is bounded");
    }
    assert!(output.stdout().answer("answer", Keep::Must));
    while output.stdout().answer(&"y".repeat(100_000), Keep::Must) {
        taken += 1;
        assert!(taken < 2_000, "even what ought to be kept is bounded");
    }
    assert!(output.stdout().answer("envelope\n", Keep::Last));
    output.stderr().lines("receipt", Keep::Last);
    let began = Instant::now();
    let flushed = output.flush(SHORT);
    assert_eq!(flushed.stdout, Flush::Blocked);
    assert_eq!(flushed.stderr, Flush::Flushed, "not held up by the other");
    assert!(began.elapsed() < LONG);
    // The reader comes back: nothing that was taken is missing, and the last thing is the last.
    let reading = read_aside(out);
    assert_eq!(output.flush(LONG).stdout, Flush::Flushed);
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
    let output = Output::new(stdout, stderr).unwrap();
    output.stdout().answer("a", Keep::Must);
    let closed = Flush::Closed(std::io::ErrorKind::BrokenPipe);
    assert_eq!(output.flush(LONG).stdout, closed);
    assert!(output.stdout().answer("b", Keep::Must), "nobody misses it");
    assert_eq!(output.flush(LONG).stdout, closed);
}

#[test]
fn a_full_disk_is_said() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let (_err, stderr) = pipe();
    let output = Output::new(full(), stderr).unwrap();
    output.stdout().answer("a", Keep::Last);
    let flushed = output.flush(LONG);
    assert_eq!(
        flushed.stdout,
        Flush::Closed(std::io::ErrorKind::StorageFull)
    );
    assert_eq!(flushed.stderr, Flush::Flushed);
}

#[test]
fn a_non_blocking_pipe_gets_all_of_it() {
    let ((out, stdout), (_err, stderr)) = (pipe(), pipe());
    rustix::io::ioctl_fionbio(&stdout, true).unwrap();
    let output = Output::new(stdout, stderr).unwrap();
    let text = "z".repeat(1_000_000);
    assert!(output.stdout().answer(&text, Keep::Last));
    let reading = read_aside(out);
    assert_eq!(output.flush(LONG).stdout, Flush::Flushed);
    drop(output);
    assert!(reading.join().unwrap() == text);
}

#[test]
fn a_question_holds_back_what_comes_after_it_until_it_is_over() {
    let ((mut out, stdout), (_err, stderr)) = (pipe(), pipe());
    let output = Output::new(stdout, stderr).unwrap();
    let asked = output.stdout().question("Allow? ".into());
    output.stdout().lines("later", Keep::Must);
    // The question is there, and what comes after it is not.
    let mut buffer = [0; 64];
    let count = out.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..count], b"Allow? ");
    rustix::io::ioctl_fionbio(&out, true).unwrap();
    assert!(out.read(&mut buffer).is_err(), "nothing yet");
    rustix::io::ioctl_fionbio(&out, false).unwrap();
    drop(asked);
    output.flush(LONG);
    drop(output);
    assert_eq!(read_all(out), "later\n");
}

#[test]
fn a_withdrawn_question_is_closed_first_and_one_never_shown_leaves_nothing() {
    let ((out, stdout), (_err, stderr)) = (pipe(), pipe());
    let output = Output::new(stdout, stderr).unwrap();
    let lane = output.stdout();
    let mut first = lane.question("first? ".into());
    first.close_with("withdrawn\n");
    let mut second = lane.question("second? ".into());
    second.close_with("never\n");
    lane.lines("later", Keep::Must);
    wait_until_held(lane);
    drop(second);
    drop(first);
    output.flush(LONG);
    drop(output);
    assert_eq!(read_all(out), "first? withdrawn\nlater\n");
}

#[test]
fn a_flush_does_not_wait_for_an_answer() {
    let ((out, stdout), (_err, stderr)) = (pipe(), pipe());
    let output = Output::new(stdout, stderr).unwrap();
    let _asked = output.stdout().question("Allow? ".into());
    output.stdout().lines("receipt", Keep::Last);
    assert_eq!(output.flush(LONG).stdout, Flush::Flushed);
    let mut read = [0; 64];
    let count = (&out).read(&mut read).unwrap();
    assert!(read[..count].ends_with(b"receipt\n"));
}

fn wait_until_held(lane: &Lane) {
    let deadline = Instant::now() + LONG;
    while !lane.is_held() {
        assert!(Instant::now() < deadline, "the question is not shown");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_typed_stays_whole_below_an_answer_that_comes_in_pieces() {
    use crate::display::Style;
    use crate::display::screen::Screen;

    let mut screen = Screen::open(8, 12);
    let output = Output::new(screen.terminal(), screen.terminal()).unwrap();
    let typed = |text: &str| {
        let entry = Entry {
            above: vec!["  waits: next".into()],
            prefix: "> ".into(),
            text: text.to_owned(),
            cursor: text.len(),
            style: Style::default(),
        };
        output.stdout().show_entry(Some(entry));
    };
    // One letter at a time, each drawn, over several rows of the terminal, and twelve of them exactly.
    let answer = "The answer, word by word, and more";
    for (at, letter) in answer.char_indices() {
        typed(&answer[..at / 4]);
        output
            .stdout()
            .answer(letter.encode_utf8(&mut [0; 4]), Keep::Must);
        // Rows that a terminal has wrapped are one line of its contents: blanks and ends of line say nothing.
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        let shows = format!("{} waits:... > {}", &answer[..=at], &answer[..at / 4]);
        screen.wait_until(|screen| letters(screen) == letters(&shows));
    }
    output.stderr().lines("a note", Keep::Must);
    screen.wait_until(|screen| screen.contains("and more\na note\n  waits:...\n> "));
}
