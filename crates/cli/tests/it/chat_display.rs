//! The display of a chat and of terminals that watch it, on small terminals and on a terminal without a cursor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, tcgetattr};

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, Signal, eventually};

/// Turns with an answer that pauses in the middle of a word, with background work, and with a long permission question.
const SCRIPT: &str = r#"
turns:
  - when: slow
    replies:
      - chunks: [{text: "One paragraph has two par"}, {text: "ts."}, {text: " The"}, {text: " end."}]
        stall: mid_stream
        stall_for: 3s
  - when: hang
    replies:
      - chunks: [{text: "Words that were said\n"}, {text: " never said"}]
        stall: mid_stream
  - when: server
    replies:
      - calls: [{tool: shell, arguments: {command: "sleep 600 && echo a command of many words", background: true}}]
      - {text: "It is up."}
  - when: ask
    replies:
      - calls: [{tool: shell, arguments: {command: "LINES"}}]
      - {text: "Done."}
replies: []
"#;

fn script() -> String {
    let lines: Vec<String> = (1..=40).map(|number| format!("echo {number}")).collect();
    SCRIPT.replace("LINES", &lines.join("\\n"))
}

fn start_chat<'a>(place: &'a Place, size: (u16, u16), args: &str) -> ChatUser<'a> {
    let terminal = Terminal::new();
    terminal.resize(size);
    let chat = place.allstop().arg("chat").args(args).arg("--model");
    ChatUser::with_model(place, chat.arg(place.script(&script())), terminal)
}

#[test]
fn command_in_an_answer_stands_between_whole_words() {
    for size in [(100, 30), (60, 20), (38, 60)] {
        let place = Place::new();
        let user = start_chat(&place, size, "--policy interrupt");
        user.types("slow").waits_for("two par").types("/policy");
        user.waits_for("policy interrupt").waits_for("The end.");
        user.waits_until_idle().presses(CTRL_D);
        let (_, screen) = user.leaves_chat();
        let texts = [
            "One paragraph has two\n",
            "› /policy\n",
            "policy interrupt\n",
            "parts. The end.\n",
        ];
        assert_in_order(&screen, &texts);
        assert_eq!(screen.matches("paragraph").count(), 1, "{screen}");
    }
}

#[test]
fn narrow_terminal_keeps_labels_and_whole_words() {
    let place = Place::new();
    let user = start_chat(&place, (40, 60), "--yes");
    user.types("server").waits_for("It is up.");
    user.presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_in_order(
        &screen,
        &[
            "▶ shell: sleep 600 && echo",
            "bg_1 runs in the background\n",
        ],
    );
    assert_in_order(
        &screen,
        &["/help lists commands and keys\n", "to continue:\n"],
    );
}

#[test]
fn rest_of_a_question_is_counted_once() {
    let place = Place::new();
    let user = start_chat(&place, (60, 20), "");
    user.types("ask")
        .waits_for("… 30 more lines · v shows more");
    user.types("v").waits_for("… 20 more lines · v shows more");
    assert_eq!(user.screen().matches("more lines").count(), 1);
    user.types("v")
        .waits_for("echo 30")
        .types("v")
        .waits_for("echo 40");
    let is_all = || !user.screen().contains("more lines");
    eventually("no rest", || is_all().then_some(()));
    user.types("n").waits_for("Done.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(!screen.contains("v shows more"), "{screen}");
    assert_in_order(&screen, &["│ echo 10\n  │ echo 11\n", "│ echo 40\n"]);
}

/// In a small pane, each `v` shows half a screen of the question.
#[test]
fn a_question_in_a_small_pane_is_read_page_by_page() {
    for (size, page) in [((40, 10), 5), ((20, 5), 2)] {
        let place = Place::new();
        let user = start_chat(&place, size, "");
        user.types("ask").waits_for_choices();
        let shown = || user.screen().matches("echo ").count();
        for _ in 0..40 {
            let before = shown();
            if before == 40 {
                break;
            }
            let next = before + page.min(40 - before);
            user.types("v");
            eventually("the next page", || (shown() == next).then_some(()));
        }
        user.waits_for("echo 40").types("n").waits_for("Done.");
        user.presses(CTRL_D);
        drop(user.leaves_chat());
    }
}

#[test]
fn watcher_sees_the_words_before_the_stop() {
    let place = Place::new();
    let user = start_chat(&place, (80, 24), "");
    user.types("hang").waits_for("were said");
    let terminal = Terminal::new();
    let watcher = place.allstop().args("watch last").env("TERM", "xterm");
    let watcher = watcher.on_screen(terminal.line()).start();
    terminal.wait("were said");
    user.presses(CTRL_C).waits_for("stopped by you");
    terminal.wait("verified.");
    user.presses(CTRL_D);
    assert_eq!(watcher.end(FACT_MAX).code, 0);
    drop(user.leaves_chat());
    let mut emulator = vt100::Parser::new(200, 80, 0);
    emulator.process(terminal.written().as_bytes());
    let screen = emulator.screen().contents();
    assert_in_order(
        &screen,
        &["Words that were said", "stopping, force in", "stopped by"],
    );
    assert_eq!(screen.matches("were said").count(), 1, "{screen}");
}

/// The chat makes the terminal report focus changes and pasted text. If these reports continued after a signal, the
/// shell would read them as typed input.
#[test]
fn signals_end_the_reports_of_the_terminal() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::ABORT, 134),
        (Signal::ALARM, 142),
        (Signal::USR1, 138),
    ] {
        let place = Place::new();
        let user = start_chat(&place, (80, 24), "");
        user.types("hang").waits_for("were said");
        let ChatUser { terminal, chat, .. } = user;
        assert_eq!(chat.end_by(signal).code, code, "{}", terminal.shown());
        let shown = terminal.all_shown();
        for mode in ["\x1b[?1004", "\x1b[?2004"] {
            let (_, last) = shown.rsplit_once(mode).expect("the chat sets it");
            assert!(last.starts_with('l'), "{signal:?}: {shown:?}");
        }
        let mode = tcgetattr(terminal.line()).expect("the terminal is there");
        let cooked = LocalModes::ICANON | LocalModes::ECHO;
        assert!(mode.local_modes.contains(cooked), "{signal:?}: {mode:?}");
    }
}

/// Regression: if the terminal read nothing, the reports stayed on, and the shell got them as typed text.
#[test]
fn a_terminal_that_reads_nothing_gets_the_end_of_its_reports() {
    let place = Place::new();
    let script = place.script("replies: [{calls: [{tool: shell, arguments: {command: 'touch begun; seq 1 100000; sleep 600'}}]}]");
    let terminal = Terminal::unread();
    let chat = place
        .allstop()
        .args("chat --yes --store")
        .arg(place.store());
    let chat = chat
        .arg("--model")
        .arg(script)
        .arg("go")
        .env("TERM", "xterm");
    let chat = chat.on_screen(terminal.line()).start();
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    // The terminal is full as soon as its writer waits.
    let is_full = || {
        let mut fds = [PollFd::new(terminal.line(), PollFlags::OUT)];
        let ready = poll(&mut fds, Some(&Timespec::default()));
        (ready == Ok(0)).then_some(())
    };
    eventually("a full terminal", is_full);
    assert_eq!(chat.end_by(Signal::TERM).code, 143);
    let pending = terminal.pending();
    for mode in ["\x1b[?1004", "\x1b[?2004"] {
        let (_, last) = pending.rsplit_once(mode).unwrap_or_default();
        assert!(
            last.starts_with('l'),
            "{} … {:?}",
            pending.len(),
            &pending[pending.floor_char_boundary(pending.len().saturating_sub(400))..]
        );
    }
}

#[test]
fn terminal_without_a_cursor_gets_no_sequence() {
    let place = Place::new();
    let terminal = Terminal::new();
    let chat = place.allstop().args("chat --policy interrupt --store");
    let chat = chat.arg(place.store());
    let chat = chat.arg("--model").arg(place.script(&script()));
    let chat = chat.env("TERM", "dumb").env("LANG", "C.UTF-8");
    let chat = chat.on_screen(terminal.line()).start();
    terminal.wait("/help lists");
    terminal.type_keys("/policy\n");
    terminal.wait("policy interrupt\r\n› ");
    terminal.type_keys("ask\n");
    terminal.wait("yes, once");
    terminal.type_keys("n because\n");
    terminal.wait("denied: shell: echo 1");
    terminal.wait(" · because\r\n› ");
    terminal.type_keys("hang\n");
    terminal.wait("were said");
    terminal.type_keys(CTRL_C);
    terminal.wait("stopped by you");
    assert_eq!(terminal.leaves_chat(chat).code, 0, "{}", terminal.shown());
    let shown = terminal.all_shown();
    assert!(!shown.contains('\x1b'), "{shown:?}");
    assert_eq!(shown.matches("› ask").count(), 1, "{shown}");
}

#[test]
fn ctrl_l_clears_the_screen_and_keeps_the_typed_line() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short").waits_for("A short answer.");
    user.presses("half\x0c").waits_for("› half");
    let is_clear = || !user.screen().contains("A short answer.");
    let cleared = within(FACT_MAX, || is_clear().then_some(()));
    assert!(cleared.is_some(), "{}", user.screen());
    user.waits_for("› half").presses("\x15").presses(CTRL_D);
    drop(user.leaves_chat());
}
