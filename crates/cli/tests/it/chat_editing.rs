//! Editing of a message: long pastes, undo, files after `@`, an editor, and the title of the window.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::wait::within;
use crate::support::{FACT_MAX, Place, Signal, eventually};

#[test]
fn a_long_paste_is_one_token_and_is_sent_whole() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    let long = "pasted line\r".repeat(10_000);
    user.presses(&format!("short \x1b[200~{long}\x1b[201~"))
        .waits_for("› short [pasted 10,000 lines]");
    assert!(user.screen().lines().count() < 10, "{}", user.screen());
    user.presses("\r").waits_for("A short answer.");
    user.waits_for("[9,995 more lines]");
    // The key Up brings the whole message back.
    user.presses("\x1b[A").waits_for("› [pasted 10,000 lines]");
    user.presses("\x15").presses(CTRL_D);
    drop(user.leaves_chat());
    let exported = place.sessions().args("export last").end().stdout;
    assert_eq!(exported.matches("pasted line").count(), 10_000);
}

#[test]
fn tab_completes_a_file_after_an_at_sign() {
    let place = Place::new();
    std::fs::create_dir_all(place.work().join("source")).expect("a folder");
    for name in ["source/alpha.rs", "source/beta.rs"] {
        std::fs::write(place.work().join(name), "").expect("a file");
    }
    let user = ChatUser::start_chat(&place, "");
    user.presses("read @sou\t").waits_for("› read @source/");
    user.presses("\t")
        .waits_for("source/alpha.rs  source/beta.rs");
    user.presses("b\t").waits_for("› read @source/beta.rs");
    user.presses("\x15").presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn ctrl_g_edits_the_message_and_ctrl_underscore_undoes() {
    let place = Place::new();
    let editor = place.work().join("editor");
    let script = "#!/bin/sh\ngrep -q draft \"$1\" && printf 'short\\nand edited\\n' > \"$1\"\n";
    std::fs::write(&editor, script).expect("a file");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&editor, executable).expect("a mode");
    let chat = place
        .allstop()
        .args("chat")
        .env("EDITOR", editor.to_str().expect("UTF-8"));
    let user = ChatUser::at_terminal(&place, chat, Terminal::new());
    user.presses("draft\x07").waits_for("› short\n  and edited");
    user.presses(" typo").waits_for("edited typo");
    user.presses("\x1f")
        .presses("\r")
        .waits_for("A short answer.");
    // An editor that fails changes nothing.
    user.presses("other\x07")
        .waits_for("the message is unchanged");
    user.waits_for("› other").presses("\x15").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(screen.contains("› short\n  and edited\n"), "{screen}");
}

/// Regression: keys that were typed while an editor was open answered a question that appeared only after its end.
#[test]
fn keys_beside_an_open_editor_answer_no_question() {
    let place = Place::new();
    let (begun, end) = (place.work().join("begun"), place.work().join("end"));
    let editor = format!(
        "sh -c 'mkfifo {1}; touch {0}; cat {1}'",
        begun.display(),
        end.display()
    );
    let asks = place.script(
        "replies: [{calls: [{tool: shell, arguments: {command: touch hacked}}]}, {text: Denied.}]",
    );
    let chat = place.allstop().args("chat --model").arg(asks);
    let user = ChatUser::with_model(&place, chat.env("EDITOR", &editor), Terminal::new());
    user.presses("go\r\x07");
    eventually("the editor", || begun.exists().then_some(()));
    user.presses("y\r");
    std::fs::write(&end, "").expect("a file");
    user.waits_for_choices().types("n").waits_for("Denied.");
    assert!(!place.work().join("hacked").exists(), "{}", user.screen());
    // The typed keys may be a draft.
    user.presses("\x15").presses(CTRL_D);
    drop(user.leaves_chat());
}

/// Regression: SIGTERM left the editor at the terminal of the shell.
#[test]
fn the_end_of_the_chat_ends_an_open_editor() {
    let place = Place::new();
    let begun = place.work().join("begun");
    let editor = format!("sh -c 'echo $$ > {}; exec sleep 600' ", begun.display());
    let chat = place.allstop().args("chat").env("EDITOR", &editor);
    let user = ChatUser::at_terminal(&place, chat, Terminal::new());
    user.presses("draft\x07");
    let pid = || {
        std::fs::read_to_string(&begun)
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
    };
    let pid = within(FACT_MAX, pid).expect("the editor");
    assert_eq!(user.chat.end_by(Signal::TERM).code, 143);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn the_title_of_the_window_names_the_state_and_is_restored() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    let title = |text: &str| format!("\x1b]2;{text}allstop ");
    let has = |text: &str| user.terminal.written().contains(text).then_some(());
    eventually("a title", || has(&title("")));
    user.types("stubborn");
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    eventually("a running turn", || has(&title("▶ ")));
    user.presses(CTRL_C);
    eventually("a stop", || has(&title("■ ")));
    user.presses(CTRL_C)
        .waits_for("stopped by you")
        .presses(CTRL_D);
    let terminal = user.terminal.written();
    let marks: Vec<_> = ["A", "C", "D"]
        .map(|mark| terminal.find(&format!("\x1b]133;{mark}\x1b\\")))
        .to_vec();
    assert!(marks.is_sorted() && !marks.contains(&None), "{marks:?}");
    let (ended, _) = user.leaves_chat();
    drop(ended);
}

/// The last lines of a command that succeeded stay, and the reasoning is shown on request.
#[test]
fn results_and_thinking_are_shown() {
    let place = Place::new();
    let script = place.script(
        r#"
turns:
  - when: list
    replies:
      - calls: [{tool: shell, arguments: {command: "seq 1 30"}}]
      - text: "Listed."
  - when: think
    replies:
      - chunks: [{reasoning: "first thought\nsecond thought"}, {text: "Thought."}]
"#,
    );
    let chat = place.allstop().args("chat --yes --model").arg(script);
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("list").waits_for("Listed.");
    user.waits_for("│ … 26 lines more\n  │ 27\n  │ 28\n  │ 29\n  │ 30\nListed.");
    user.types("think").waits_for("Thought.");
    assert!(
        !user.screen().contains("first thought"),
        "{}",
        user.screen()
    );
    user.types("/thinking").waits_for("is shown from now on");
    user.types("think")
        .waits_for("  first thought\n  second thought\nThought.");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}
