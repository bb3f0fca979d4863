//! Permission modes, and notifications for a user who looks at another window.

use crate::support::person::{CTRL_D, Person};
use crate::support::terminal::Terminal;
use crate::support::{Place, eventually};

const SHIFT_TAB: &str = "\x1b[Z";
const FOCUS_LOST: &str = "\x1b[O";
const FOCUS_GAINED: &str = "\x1b[I";

/// Writes a file, then runs a command.
const CHANGES: &str = "
replies:
  - calls: [{tool: write, arguments: {path: notes, content: hello}}]
  - calls: [{tool: shell, arguments: {command: echo x > ran}}]
  - text: Done.
  - text: Done again.
";

#[test]
fn mode_decides_what_a_run_without_a_person_may_do() {
    for (args, notes, ran, denied) in [
        ("--mode plan --yes", false, false, "the mode is `plan`"),
        ("--mode ask", false, false, "write"),
        ("--mode accept-edits", true, false, "shell"),
        ("--mode accept-edits --yes", true, true, ""),
    ] {
        let place = Place::new();
        let run = place.run_unasked().arg("--model");
        let run = run.arg(place.script(CHANGES)).args("--json").args(args);
        let ended = run.arg("go").end().ok();
        let wrote = |name: &str| place.work().join(name).exists();
        assert_eq!((wrote("notes"), wrote("ran")), (notes, ran), "{args}");
        let denials = ended.envelope()["denials"].to_string();
        assert!(denials.contains(denied), "{args}: {denials}");
    }
}

#[test]
fn unknown_mode_is_named_with_the_known_ones() {
    let place = Place::new();
    let ended = place.run().args("--mode auto hello").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("accept-edits"), "{ended:#?}");
}

/// The key affects the next call, and the status shows the effective mode.
#[test]
fn shift_tab_and_the_command_change_the_mode_of_a_chat() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let terminal = Terminal::new();
    terminal.resize((80, 24));
    let person = Person::with_model(&place, chat.arg(place.script(CHANGES)), terminal);
    person.sees("ask (Shift-Tab)").presses(SHIFT_TAB);
    person.sees("mode accept-edits: ").says("go");
    // The file is written without a question, and the command needs one.
    person.sees("? Allow shell: echo x > ran");
    assert!(place.work().join("notes").exists());
    assert_eq!(person.screen().matches("? Allow").count(), 1);
    person.presses(SHIFT_TAB).sees("plan (Shift-Tab)");
    person.says("n not now").sees("no: not now");
    person.sees("Done.").says("/mode ask");
    person.sees("mode ask: ").says("/mode x");
    person.sees("use plan, ask or accept-edits");
    person.presses(CTRL_D);
    drop(person.left());
    assert!(!place.work().join("ran").exists());
}

/// The open question belongs to the previous mode. A yes after the switch runs nothing.
#[test]
fn switch_to_plan_counts_for_an_open_question() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let person = Person::with_model(&place, chat.arg(place.script(CHANGES)), Terminal::new());
    person.says("go").sees("? Allow write notes");
    person.says("/mode plan").sees("mode plan: ").says("y");
    person.sees("Done.").presses(CTRL_D);
    drop(person.left());
    assert!(!place.work().join("notes").exists());
}

/// An answer covers only the shown state. A file that was saved meanwhile, or a link that was redirected, stays
/// unchanged.
#[test]
fn yes_is_applied_to_the_file_that_was_shown_and_to_no_other() {
    let script = "
replies:
  - calls: [{tool: write, arguments: {path: saved, content: new}}]
  - calls: [{tool: edit, arguments: {path: link, old: old, new: new}}]
  - calls: [{tool: write, arguments: {path: missing, content: new}}]
  - text: Done.
";
    let place = Place::new();
    let file = |name: &str| place.work().join(name);
    for name in ["saved", "one", "two"] {
        std::fs::write(file(name), "old\n").expect("a file");
    }
    std::os::unix::fs::symlink("one", file("link")).expect("a link");
    let chat = place.allstop().arg("chat").arg("--model");
    let person = Person::with_model(&place, chat.arg(place.script(script)), Terminal::new());
    person.says("go").sees("? Allow write saved");
    std::fs::write(file("saved"), "saved meanwhile\n").expect("it is saved");
    person.says("y").sees("no longer what the user saw");
    person.sees("? Allow edit link");
    std::fs::remove_file(file("link")).expect("the link");
    std::os::unix::fs::symlink("two", file("link")).expect("a link");
    person.says("y").sees("? Allow write missing");
    std::fs::write(file("missing"), "made meanwhile\n").expect("a file");
    person.says("y").sees("Done.").presses(CTRL_D);
    let (_, screen) = person.left();
    let content = |name: &str| std::fs::read_to_string(file(name)).expect("text");
    assert_eq!(content("saved"), "saved meanwhile\n", "{screen}");
    assert_eq!(
        [content("one"), content("two")],
        ["old\n", "old\n"],
        "{screen}"
    );
    assert_eq!(content("missing"), "made meanwhile\n", "{screen}");
}

/// A bell sounds for a question and for the end of a turn, but only while the window is not focused.
#[test]
fn bell_calls_only_who_looks_elsewhere() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let chat = chat.arg(place.script(CHANGES)).args("--mode accept-edits");
    let person = Person::with_model(&place, chat, Terminal::new());
    let bells = || person.terminal.shown().matches('\x07').count();
    person.presses(FOCUS_LOST).says("go").sees("? Allow shell");
    eventually("a bell", || (bells() == 1).then_some(()));
    person.presses(FOCUS_GAINED).says("y").sees("Done.");
    person.says("more").sees("Done again.").presses(CTRL_D);
    assert_eq!(bells(), 1);
    let (_, screen) = person.left();
    assert!(!screen.contains("[O") && !screen.contains("[I"), "{screen}");
}
