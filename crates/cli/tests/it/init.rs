//! `allstop init`: creates a configuration interactively.

use std::fs;

use crate::support::terminal::Terminal;
use crate::support::{FACT_MAX, Place};

/// Answers the questions in order. Returns the exit code and the screen.
fn init(place: &Place, answers: &[&str]) -> (i32, String) {
    let terminal = Terminal::new();
    let init = place.allstop().arg("init").env("TERM", "xterm");
    let init = init.env("ANTHROPIC_API_KEY", "a-key");
    let running = init.on_terminal(terminal.line()).start();
    for (count, keys) in answers.iter().enumerate() {
        terminal.wait(QUESTIONS[count]);
        terminal.type_keys(keys);
    }
    let ended = running.end(FACT_MAX);
    (ended.code, terminal.all_shown())
}

/// Parts of the texts of the questions, in order.
const QUESTIONS: [&str; 4] = [
    "number [1]",
    "Name of the model [",
    "What may the agent do without a question?",
    "yes\r\n",
];

fn file(place: &Place) -> std::path::PathBuf {
    place.path("home/.config/allstop/allstop.toml")
}

#[test]
fn init_writes_a_file_and_never_replaces_one_unasked() {
    let place = Place::new();
    let (code, screen) = init(&place, &["\n", "\n", "2\n", "2\n"]);
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("ANTHROPIC_API_KEY is set"), "{screen}");
    let text = fs::read_to_string(file(&place)).unwrap();
    for part in ["name = \"claude-sonnet-4-5\"", "mode = \"accept-edits\""] {
        assert!(
            text.contains(part) && screen.contains(part),
            "{part} in {text}"
        );
    }
    // An empty answer to the question about the existing file means no.
    let (code, screen) = init(&place, &["\n", "other\n", "1\n", "\n"]);
    assert_eq!(code, 1, "{screen}");
    assert!(screen.contains("exists. Replace all of it?"), "{screen}");
    assert_eq!(fs::read_to_string(file(&place)).unwrap(), text);
    let (code, screen) = init(&place, &["\n", "other\n", "1\n", "9\n2\n"]);
    assert_eq!(code, 0, "{screen}");
    let text = fs::read_to_string(file(&place)).unwrap();
    assert!(
        text.contains("name = \"other\"") && !text.contains("allow"),
        "{text}"
    );
}

#[test]
fn ctrl_c_and_a_missing_terminal_write_nothing() {
    let place = Place::new();
    let (code, _) = init(&place, &["\n", "\x03"]);
    assert_eq!(code, 130);
    let ended = place.allstop().arg("init").end();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("[model]"), "{}", ended.stderr);
    assert!(!file(&place).exists());
}
