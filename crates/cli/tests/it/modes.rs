//! Permission modes, and notifications for a user who looks at another window.

use crate::support::chat_user::{CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::{Place, eventually};

const SHIFT_TAB: &str = "\x1b[Z";
const FOCUS_LOST: &str = "\x1b[O";
const FOCUS_GAINED: &str = "\x1b[I";

/// Script whose calls write a file, and then run a command.
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

/// In the mode `plan`, commands that only read run, also in a sub-agent. All others are denied.
#[test]
fn commands_that_only_read_run_in_the_mode_plan() {
    let script = "
turns:
  - when: look there
    replies:
      - calls: [{tool: shell, arguments: {command: 'ls -a | head -50'}}]
      - {text: Looked.}
  - when: go
    replies:
      - calls:
          - {tool: shell, arguments: {command: 'cat notes'}}
          - {tool: shell, arguments: {command: 'cat notes > copy'}}
          - {tool: agent, arguments: {prompt: look there}}
      - {text: Done.}
replies: []
";
    let place = Place::new();
    std::fs::write(place.work().join("notes"), "a note\n").expect("a file");
    let run = place
        .allstop()
        .args("run --mode plan --stream-json --store");
    let run = run
        .arg(place.store())
        .arg("--model")
        .arg(place.script(script));
    let ended = run.arg("go").end().ok();
    let finished: Vec<_> = ended
        .lines()
        .into_iter()
        .filter(|line| line["event"] == "tool_finished")
        .map(|line| {
            (
                line["name"].clone(),
                line["outcome"].clone(),
                line["content"].clone(),
            )
        })
        .collect();
    let has = |text: &str| {
        finished.iter().any(|(_, _, content)| {
            content
                .as_str()
                .is_some_and(|content| content.contains(text))
        })
    };
    assert!(has("a note"), "{finished:#?}");
    assert!(has("the mode is `plan`"), "{finished:#?}");
    assert!(has("Looked."), "{finished:#?}");
    assert!(!place.work().join("copy").exists());
}

/// The key Shift-Tab and the command `/mode` change the mode from the next call on. The status line shows the effective
/// mode.
#[test]
fn shift_tab_and_the_command_change_the_mode_of_a_chat() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let terminal = Terminal::new();
    terminal.resize((80, 24));
    let user = ChatUser::with_model(&place, chat.arg(place.script(CHANGES)), terminal);
    user.waits_for("ask (Shift-Tab)").presses(SHIFT_TAB);
    user.waits_for("mode accept-edits: ").types("go");
    // The write of the file needs no question, but the command needs one.
    user.waits_for("? Allow shell: echo x > ran");
    assert!(place.work().join("notes").exists());
    assert_eq!(user.screen().matches("? Allow").count(), 1);
    user.presses(SHIFT_TAB).waits_for("plan (Shift-Tab)");
    user.answers("n not now").waits_for("no: not now");
    user.waits_for("Done.").types("/mode ask");
    user.waits_for("mode ask: ").types("/mode x");
    user.waits_for("use plan, ask or accept-edits");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    assert!(!place.work().join("ran").exists());
}

/// The permission question was opened before the switch to the mode `plan`. Even if the user then answers yes, the call
/// does not run.
#[test]
fn switch_to_plan_counts_for_an_open_question() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let user = ChatUser::with_model(&place, chat.arg(place.script(CHANGES)), Terminal::new());
    user.types("go").waits_for("? Allow write notes");
    user.types("/mode plan")
        .waits_for("mode plan: ")
        .answers("y");
    user.waits_for("Done.").presses(CTRL_D);
    drop(user.leaves_chat());
    assert!(!place.work().join("notes").exists());
}

/// A yes applies only to the change that the question has shown. If the file or the target of the link has changed
/// since then, the call writes nothing.
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
    let user = ChatUser::with_model(&place, chat.arg(place.script(script)), Terminal::new());
    user.types("go").waits_for("? Allow write saved");
    std::fs::write(file("saved"), "saved meanwhile\n").expect("it is saved");
    user.answers("y").waits_for("no longer what the user saw");
    user.waits_for("? Allow edit link");
    std::fs::remove_file(file("link")).expect("the link");
    std::os::unix::fs::symlink("two", file("link")).expect("a link");
    user.answers("y").waits_for("? Allow write missing");
    std::fs::write(file("missing"), "made meanwhile\n").expect("a file");
    user.answers("y").waits_for("Done.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    let content = |name: &str| std::fs::read_to_string(file(name)).expect("text");
    assert_eq!(content("saved"), "saved meanwhile\n", "{screen}");
    assert_eq!(
        [content("one"), content("two")],
        ["old\n", "old\n"],
        "{screen}"
    );
    assert_eq!(content("missing"), "made meanwhile\n", "{screen}");
}

/// The terminal bell sounds for a permission question and for the end of a turn, but only while the window is not
/// focused.
#[test]
fn bell_rings_only_without_focus() {
    let place = Place::new();
    let chat = place.allstop().arg("chat").arg("--model");
    let chat = chat.arg(place.script(CHANGES)).args("--mode accept-edits");
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    let bells = || user.terminal.shown().matches('\x07').count();
    user.presses(FOCUS_LOST)
        .types("go")
        .waits_for("? Allow shell");
    eventually("a bell", || (bells() == 1).then_some(()));
    user.presses(FOCUS_GAINED).answers("y").waits_for("Done.");
    user.types("more").waits_for("Done again.").presses(CTRL_D);
    assert_eq!(bells(), 1);
    let (_, screen) = user.leaves_chat();
    assert!(!screen.contains("[O") && !screen.contains("[I"), "{screen}");
}
