//! A chat at terminals of three sizes. The tests check the screen of a terminal emulator.

use rustix::termios::{LocalModes, tcgetattr};

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, eventually};

/// Columns and rows of a usual terminal, a small terminal and a large terminal.
const SIZES: [(u16, u16); 3] = [(80, 24), (40, 10), (200, 50)];

/// If the terminal joins these emoji, they are one glyph. Otherwise they are four emoji of two columns each.
const FAMILY: &str = "👩\u{200d}👩\u{200d}👧\u{200d}👦";

fn start_chat<'a>(place: &'a Place, size: (u16, u16), args: &str) -> ChatUser<'a> {
    let terminal = Terminal::new();
    terminal.resize(size);
    ChatUser::at_terminal(place, place.allstop().arg("chat").args(args), terminal)
}

/// The stop of this work takes longer than a second. If the user presses Ctrl-C to force the stop, but the stop has
/// just ended, the press must not end the chat and its background work.
#[test]
fn ctrl_c_right_after_a_late_receipt_does_not_leave() {
    for size in SIZES {
        // If the machine stalls for a second, the late press is a new request and ends the chat. So the test has
        // several tries.
        let was_in_time = (0..5).any(|_| presses_right_after_a_late_receipt(size));
        assert!(was_in_time, "{size:?}");
    }
}

/// False if more than a second passed between the receipt of the stop and the press.
fn presses_right_after_a_late_receipt(size: (u16, u16)) -> bool {
    let place = Place::new();
    let user = start_chat(&place, size, "--yes --grace 1100ms");
    user.types("server").waits_for("It is up.");
    user.types("stubborn");
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    user.presses(CTRL_C).waits_for("stopped by you (Ctrl-C)");
    user.presses(CTRL_C);
    eventually("an answer to the press", || {
        let screen = user.screen();
        let texts = ["the work has ended", "allstop sessions resume"];
        texts.iter().any(|text| screen.contains(text)).then_some(())
    });
    let was_heard = user.screen().contains("the work has ended");
    if was_heard {
        user.types("/background").waits_for("bg_1: runs");
        user.presses(CTRL_D);
    }
    user.leaves_chat();
    was_heard
}

#[test]
fn an_escape_swallows_no_key_that_comes_later() {
    for size in SIZES {
        let place = Place::new();
        let user = start_chat(&place, size, "");
        user.presses("\x12nothing").waits_for("search: nothing");
        user.presses("\x1b");
        // Escape ends the search only after a short wait, because the byte can also be the beginning of a control
        // sequence.
        let is_over = || (!user.screen().contains("search")).then_some(());
        eventually("the end of the search", is_over);
        user.types("short")
            .waits_for("A short answer.")
            .presses(CTRL_D);
        user.leaves_chat();
    }
}

/// Keys that are typed before the chat takes over the terminal. Until then, the terminal converts Enter to a newline.
#[test]
fn type_ahead_is_read_unchanged() {
    for size in SIZES {
        let place = Place::new();
        let terminal = Terminal::new();
        terminal.resize(size);
        terminal.type_keys("short\rhal");
        let user = ChatUser::at_terminal(&place, place.allstop().arg("chat"), terminal);
        user.waits_for("A short answer.").waits_for("› hal");
        user.presses("\x15").presses(CTRL_D);
        user.leaves_chat();
    }
}

/// After Ctrl-Z, the shell gets the terminal back. The shell command `fg` returns the terminal to the chat.
#[test]
fn ctrl_z_names_what_runs_on_and_fg_brings_the_chat_back() {
    let shell = "set -m; \"$0\" \"$@\"; echo it is the shell; read line; fg";
    for size in SIZES {
        let place = Place::new();
        let terminal = Terminal::new();
        terminal.resize(size);
        let chat = place.allstop().args("chat --yes").by_script(shell);
        let user = ChatUser::at_terminal(&place, chat, terminal);
        user.types("sleep in there");
        let begun = place.work().join("sleeps");
        eventually("the call", || begun.exists().then_some(()));
        user.presses("half").waits_for("› half").presses("\x1a");
        user.waits_for_words("still running, with deadlines: shell (call_");
        user.waits_for_words("resumes Allstop")
            .waits_for("it is the shell");
        let mode = tcgetattr(user.terminal.line()).expect("the terminal is there");
        let cooked = LocalModes::ICANON | LocalModes::ECHO;
        assert!(mode.local_modes.contains(cooked), "{mode:?}");
        user.presses("x\n").waits_for("› half").presses(CTRL_C);
        user.waits_for("left running")
            .presses("\x15")
            .presses(CTRL_D);
        user.leaves_chat();
    }
}

/// Regression: `fg` sends no signal to a process that `bg` has resumed, so the chat did not take the terminal again. In the
/// background it drew its input line over the line of the shell.
#[test]
fn chat_in_the_background_draws_nothing_and_comes_back_with_fg() {
    let shell =
        "set -m; \"$0\" \"$@\"; bg; echo it is the shell; read line; echo the shell read $line; fg";
    let place = Place::new();
    let chat = place.allstop().args("chat --yes").by_script(shell);
    let user = ChatUser::at_terminal(&place, chat, Terminal::new());
    user.presses("half").waits_for("› half").presses("\x1a");
    user.waits_for("it is the shell");
    let before = user.terminal.written().len();
    user.presses("to the shell\n")
        .waits_for("the shell read to the shell");
    let shown = user.terminal.written();
    let (between, _) = shown[before..]
        .split_once("the shell read to the shell")
        .expect("it was read");
    assert!(!between.contains("half"), "{between:?}");
    user.waits_for("› half")
        .presses("\x15")
        .types("short")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    drop(user.leaves_chat());
}

/// Regression: a suspended chat could not force a stop, so Ctrl-Z during the grace prolonged it.
#[test]
fn ctrl_z_during_a_stop_takes_effect_after_it() {
    let shell = "set -m; \"$0\" \"$@\"; echo it is the shell; read line; fg";
    let place = Place::new();
    let chat = place
        .allstop()
        .args("chat --yes --grace 1s")
        .by_script(shell);
    let user = ChatUser::at_terminal(&place, chat, Terminal::new());
    user.types("stubborn");
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    user.presses(CTRL_C).waits_for("Ctrl-C forces now");
    user.presses("\x1a")
        .waits_for("Ctrl-Z takes effect after it")
        .waits_for("it is the shell");
    assert!(
        user.screen().contains("stopped by SIGKILL"),
        "{}",
        user.screen()
    );
    user.presses("\n")
        .types("short")
        .waits_for("A short answer.");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn ctrl_z_in_a_run_names_what_runs_on() {
    let place = Place::new();
    let terminal = Terminal::new();
    let script =
        "replies: [{calls: [{tool: shell, arguments: {command: touch begun; sleep 600}}]}]";
    let shell = "set -m; \"$0\" \"$@\"; echo it is the shell; fg";
    let run = place.run_script(script).arg("hello").env("TERM", "xterm");
    let running = run.by_script(shell).on_terminal(terminal.line()).start();
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    terminal.type_keys("\x1a");
    terminal.wait("still running, with deadlines: shell (call_");
    running.wait_stdout("it is the shell");
    terminal.type_keys(CTRL_C);
    terminal.wait("stopped by you (Ctrl-C)");
    assert_eq!(running.end(FACT_MAX).code, 130, "{}", terminal.shown());
}

/// The choices of this permission question are wider than the terminal. Each key erases exactly the text that was drawn
/// before.
#[test]
fn a_question_is_answered_at_every_size() {
    let small = [(40, 10), (20, 5)];
    for size in SIZES.into_iter().chain(small) {
        let place = Place::new();
        let user = start_chat(&place, size, "");
        user.types("touch it").waits_for_choices();
        user.presses("nonsense\x15")
            .types("y")
            .waits_for("It is done.");
        user.presses(CTRL_D);
        let (_, screen) = user.leaves_chat();
        for text in ["› touch it", "? Allow shell"] {
            assert_eq!(screen.matches(text).count(), 1, "{size:?}:\n{screen}");
        }
    }
}

/// Rows of an answer end with emoji, on terminals that join emoji and on terminals that do not.
#[test]
fn emoji_at_the_edge_erase_no_row() {
    for (columns, rows) in SIZES {
        let place = Place::new();
        let edge = "x".repeat(usize::from(columns) - 6);
        let script = place.script(&format!(
            "replies: [{{chunks: [{{text: \"first\\nsecond\\n{edge}{FAMILY}{FAMILY}\"}}, {{after: 50ms, text: \" more\"}}, {{after: 50ms, text: \" end.\"}}]}}]"
        ));
        let terminal = Terminal::new();
        terminal.resize((columns, rows));
        let chat = place.allstop().arg("chat").arg("--model").arg(script);
        let user = ChatUser::with_model(&place, chat, terminal);
        user.types("hello").presses("typing").waits_for("end.");
        user.waits_for("› typing").presses("\x15").presses(CTRL_D);
        let shown = user.terminal.written();
        let (_, _) = user.leaves_chat();
        for shown in [shown.clone(), shown.replace(FAMILY, "你")] {
            let mut emulator = vt100::Parser::new(200, columns, 0);
            emulator.process(shown.as_bytes());
            let screen = emulator.screen().contents();
            for text in ["first", "second", &edge, "more end."] {
                assert_eq!(screen.matches(text).count(), 1, "{text}:\n{screen}");
            }
        }
    }
}

/// After a change of the width, an unfinished answer is redrawn in place. Like xterm, the emulator cuts rows that are
/// too long, and does not wrap them again.
#[test]
fn a_window_that_changes_its_width_repeats_and_loses_no_word() {
    for (columns, rows) in SIZES {
        for new in [columns - 7, columns + 30] {
            let place = Place::new();
            let words: Vec<String> = (0..columns / 2).map(|n| format!("w{n:03}")).collect();
            let script = place.script(&format!(
                "replies: [{{chunks: [{{text: \"{}\"}}, {{text: \"never said\"}}], stall: mid_stream}}]",
                words.join(" ")
            ));
            let terminal = Terminal::new();
            terminal.resize((columns, rows));
            let chat = place.allstop().arg("chat").arg("--model").arg(script);
            let chat = chat.env("XTERM_VERSION", "XTerm(390)");
            let user = ChatUser::with_model(&place, chat, terminal);
            let last = words.last().expect("words");
            user.types("hello").presses("typing").waits_for(last);
            user.waits_for("› typing");
            // The terminal has received a whole update.
            let whole = || {
                let written = user.terminal.written();
                written.ends_with("\x1b[?2026l").then_some(written.len())
            };
            let before = within(FACT_MAX, whole).expect("a whole update");
            user.terminal.resize((new, rows));
            user.presses(" on").waits_for("› typing on").presses(CTRL_C);
            user.waits_for_words("Nothing is left");
            let shown = user.terminal.written();
            user.presses("\x15").presses(CTRL_D);
            drop(user.leaves_chat());
            let (before, after) = shown.split_at(before);
            let mut emulator = vt100::Parser::new(200, columns, 0);
            emulator.process(before.as_bytes());
            emulator.screen_mut().set_size(200, new);
            emulator.process(after.as_bytes());
            let screen = emulator.screen().contents();
            for word in &words {
                let count = screen.matches(word).count();
                assert_eq!(count, 1, "{columns} to {new}: {word}\n{screen}");
            }
        }
    }
}
