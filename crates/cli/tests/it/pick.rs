//! Tests of the list from which a user picks a session to continue.

use rustix::termios::{LocalModes, tcgetattr};
use serde_json::Value;

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser, SCRIPT};
use crate::support::terminal::Terminal;
use crate::support::{Allstop, Ended, FACT_MAX, Place, Running};

const DOWN: &str = "\x1b[B";
const ESCAPE: &str = "\x1b";

/// Creates a store with two sessions. Returns their ids, the id of the older session first.
fn sessions(place: &Place) -> [String; 2] {
    ["short answers about the parser, please", "short and sweet"].map(|prompt| {
        let run = place.run_unasked().args("--yes --json --model");
        let ended = run.arg(place.script(SCRIPT)).arg(prompt).end().ok();
        let envelope = ended.envelope();
        envelope["session_id"].as_str().expect("an id").to_owned()
    })
}

fn list(place: &Place) -> Value {
    let listed = place.sessions().args("list --json").end().ok();
    serde_json::from_str(&listed.stdout).expect("a list")
}

fn at<'a>(place: &'a Place, command: &str, size: (u16, u16)) -> ChatUser<'a> {
    let terminal = Terminal::new();
    terminal.resize(size);
    ChatUser::at_terminal(place, place.allstop().args(command), terminal)
}

/// Waits for the end of a chat whose choice was cancelled, and returns the result. Asserts that the terminal is
/// restored.
#[track_caller]
fn given_up(user: ChatUser<'_>) -> Ended {
    let ended = user.chat.end(FACT_MAX);
    let mode = tcgetattr(user.terminal.line()).expect("the terminal is there");
    assert!(
        mode.local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO)
    );
    ended
}

#[test]
fn list_fits_the_width_and_arrows_choose() {
    for (size, prompt) in [
        ((80, 24), "  2   short answers about the parser, please"),
        ((40, 12), "  2   short answers about the parser…"),
    ] {
        let place = Place::new();
        let [older, _newer] = sessions(&place);
        let user = at(&place, "sessions resume", size);
        user.waits_for("› 1   short and sweet").waits_for(prompt);
        user.waits_for("Enter continues, Esc leaves");
        user.presses(DOWN).waits_for("› 2   short answers");
        user.presses("\r").waits_for(&format!("session {older}"));
        user.types("short again").waits_for_twice("A short answer.");
        user.waits_until_idle();
        assert!(
            !user.screen().contains("Choose a session"),
            "{}",
            user.screen()
        );
        user.presses(CTRL_D);
        user.leaves_chat();
    }
}

/// A user may type the next message immediately after the choice, before the chat is open.
#[test]
fn keys_after_the_choice_reach_the_chat() {
    let place = Place::new();
    let [_older, newer] = sessions(&place);
    let user = at(&place, "sessions resume", (80, 24));
    user.waits_for("› 1   short and sweet");
    user.presses("\rshort again\rhal");
    user.waits_for(&format!("session {newer}"));
    user.waits_for("› short again").waits_for("A short answer.");
    user.waits_for("› hal").presses("\x15").presses(CTRL_D);
    let shown = user.terminal.shown();
    assert!(shown.contains("\x1b[?1004h"), "the chat asks for the focus");
    drop(user.leaves_chat());
}

#[test]
fn typed_words_and_numbers_choose() {
    let place = Place::new();
    let [older, newer] = sessions(&place);
    for (typed, id) in [("1", &newer), (&newer[20..], &newer), ("PARSER", &older)] {
        let user = at(&place, "chat --resume", (80, 24));
        user.waits_for("› 1 ")
            .presses(typed)
            .waits_for(&format!("› {typed}"));
        user.presses("\r").waits_for(&format!("session {id}"));
        user.presses(CTRL_D);
        user.leaves_chat();
    }
}

#[test]
fn giving_up_changes_nothing() {
    let place = Place::new();
    sessions(&place);
    let before = list(&place);
    for key in [ESCAPE, CTRL_D, CTRL_C] {
        let user = at(&place, "sessions resume", (80, 24));
        user.waits_for("› 1 ").presses(key);
        assert_eq!(given_up(user).code, 130, "{key:?}");
    }
    assert_eq!(list(&place), before);
    place.assert_nothing_runs();
}

#[test]
fn without_a_terminal_the_error_says_what_to_give() {
    let place = Place::new();
    sessions(&place);
    for command in ["sessions resume", "chat --resume"] {
        let ended = place
            .allstop()
            .args(command)
            .arg("--store")
            .arg(place.store())
            .end();
        assert_eq!(ended.code, 2, "{ended:#?}");
        assert!(ended.stderr.contains("no session is named"), "{ended:#?}");
        assert!(
            ended.stderr.contains("allstop sessions resume last"),
            "{ended:#?}"
        );
    }
}

/// Starts `sessions resume` on a terminal without a cursor.
fn on_dumb<'a>(place: &'a Place, terminal: &Terminal) -> Running {
    let command: Allstop<'a> = place.allstop().args("sessions resume --store");
    let command = command
        .arg(place.store())
        .arg("--model")
        .arg(place.script(SCRIPT));
    let copy = terminal
        .line()
        .try_clone()
        .expect("a terminal can be duplicated");
    let command = command.env("TERM", "dumb").on_terminal(terminal.line());
    command.stdout(copy).start()
}

#[test]
fn terminal_without_a_cursor_gets_a_list_and_a_line() {
    let place = Place::new();
    let [older, _newer] = sessions(&place);
    let terminal = Terminal::new();
    let chat = on_dumb(&place, &terminal);
    terminal.wait("number, or words");
    terminal.type_keys("short\n");
    terminal.wait("2 sessions match");
    terminal.type_keys("2\n");
    let begins = format!("session {older}");
    terminal.wait(&begins);
    let shown = terminal.shown();
    let (choice, _chat) = shown.split_once(&begins).expect("it was shown");
    assert!(!choice.contains('\x1b'), "{choice:?}");
    terminal.type_keys("short again\n");
    // The first occurrence of the text is in the earlier turn.
    terminal.wait_times("A short answer.", 2);
    assert_eq!(terminal.leaves_chat(chat).code, 0);
    let shown = terminal.all_shown();
    assert!(!shown.contains('\x1b'), "{shown:?}");

    let terminal = Terminal::new();
    let chat = on_dumb(&place, &terminal);
    terminal.wait("number, or words");
    terminal.type_keys(CTRL_D);
    assert_eq!(chat.end(FACT_MAX).code, 130);
}

#[test]
fn store_without_sessions_is_reported() {
    let place = Place::new();
    let terminal = Terminal::new();
    let chat = on_dumb(&place, &terminal);
    terminal.wait("no session to continue");
    assert_eq!(chat.end(FACT_MAX).code, 2);
    assert!(!place.store().exists(), "looking makes no store");
}
