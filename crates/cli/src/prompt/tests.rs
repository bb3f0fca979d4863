//! Questions on a terminal: answered, repeated, withdrawn, and asked of nobody.

use std::sync::Arc;

use allstop_core::{CallId, Effect, SessionId};
use allstop_scope::{RootOptions, Scope};
use allstop_tools::permission::{PermissionDecision, PermissionPolicy};
use allstop_tools::{ToolInvocation, ToolSpec};
use futures::FutureExt as _;

use super::*;
use crate::display::Keep;
use crate::display::screen::Screen;

const LONG: Duration = Duration::from_secs(20);

struct Terminal {
    screen: Screen,
    output: Output,
    prompter: TerminalPrompter,
}

fn terminal(shown: Option<watch::Receiver<String>>) -> Terminal {
    let screen = Screen::open(24, 80);
    let output = Output::new(screen.terminal(), screen.terminal()).unwrap();
    let environment = Environment::read(|name| (name == "TERM").then(|| "xterm".into()));
    let tty = Tty::open(&screen.path).unwrap();
    let lane = output.terminal().unwrap().clone();
    let prompter = TerminalPrompter::new(lane, tty, &environment, shown).unwrap();
    Terminal {
        screen,
        output,
        prompter,
    }
}

/// A question, made as the loop makes it.
fn question(id: &str, command: &str) -> PermissionQuestion {
    let effect = Effect::Irreversible;
    let spec = ToolSpec {
        name: "shell".into(),
        description: "".into(),
        input_schema: Arc::default(),
        effect,
        timeout: None,
        parallel: false,
    };
    let invocation = ToolInvocation {
        session_id: SessionId::from("s"),
        call_id: CallId::from(id),
        name: "shell".into(),
        arguments: Arc::new(serde_json::json!({ "command": command })),
        scope: Scope::root("test", RootOptions::current()),
        trace: None,
        link: allstop_tools::CallLink::default(),
    };
    match PermissionPolicy::default().decide(&spec, &invocation) {
        PermissionDecision::Ask(question) => *question,
        other => panic!("nothing allows it: {other:?}"),
    }
}

/// QuestionRecipient in the background of the test, which plays the person.
macro_rules! asking {
    ($terminal:expr, $question:expr) => {
        Box::pin($terminal.prompter.ask($question))
    };
}

#[tokio::test]
async fn each_answer_is_understood() {
    for (typed, answer) in [
        ("y\n", PermissionAnswer::AllowOnce),
        (" YES \n", PermissionAnswer::AllowOnce),
        ("a\n", PermissionAnswer::AllowForSession),
        ("no\n", PermissionAnswer::Deny),
        ("\u{4}", PermissionAnswer::Deny),
    ] {
        let mut terminal = terminal(None);
        let asked = asking!(terminal, question("c", "rm -rf x"));
        let person = async {
            terminal.screen.shows("[n]o").await;
            terminal.screen.type_keys(typed);
        };
        assert_eq!(tokio::join!(asked, person).0, answer, "{typed:?}");
    }
}

#[tokio::test]
async fn a_question_reads_like_this() {
    let mut terminal = terminal(None);
    let asked = asking!(terminal, question("c", "printf '\u{1b}[2J'; rm x"));
    let person = async {
        terminal.screen.shows("[n]o").await;
        terminal.screen.type_keys("maybe\n");
        terminal.screen.shows("maybe").await;
        terminal
            .screen
            .until(|screen| screen.matches("[n]o").count() == 2)
            .await;
        terminal.screen.type_keys("y\n");
        terminal.screen.shows("> y").await;
    };
    assert_eq!(tokio::join!(asked, person).0, PermissionAnswer::AllowOnce);
    terminal.output.stderr().lines("after it", Keep::Must);
    terminal.output.flush(LONG);
    insta::assert_snapshot!(terminal.screen.contents());
}

#[tokio::test]
async fn a_question_that_is_dropped_is_withdrawn_and_reads_nothing_more() {
    let mut terminal = terminal(None);
    {
        let mut asked = asking!(terminal, question("c", "rm x"));
        assert!(asked.as_mut().now_or_never().is_none());
        terminal.screen.wait_for("[n]o");
        terminal.screen.type_keys("ye");
        terminal.screen.wait_for("ye");
    }
    terminal.screen.wait_for("withdrawn");
    assert!(!terminal.screen.contents().contains("[n]o"));
    terminal.screen.type_keys("ls\n");
    terminal.screen.wait_for("ls");
    // The next in line gets every byte: the half word is the shell's too.
    assert_eq!(terminal.screen.unread(), "yels\n");
}

#[tokio::test]
async fn what_was_typed_before_the_question_is_no_answer() {
    let mut terminal = terminal(None);
    terminal.screen.type_keys("y\n");
    terminal.screen.wait_for("y");
    let mut asked = asking!(terminal, question("c", "rm x"));
    assert!(asked.as_mut().now_or_never().is_none());
    terminal.screen.wait_for("[n]o");
    terminal.screen.type_keys("n\n");
    assert_eq!(asked.await, PermissionAnswer::Deny);
}

#[tokio::test]
async fn questions_come_one_after_another_and_a_dropped_one_does_not_block_the_next() {
    let mut terminal = terminal(None);
    let mut first = asking!(terminal, question("1", "first"));
    let mut second = asking!(terminal, question("2", "second"));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    terminal.screen.wait_for("first");
    assert!(!terminal.screen.contents().contains("second"));
    drop(first);
    let person = async {
        terminal.screen.shows("second").await;
        terminal.screen.shows("[n]o").await;
        terminal.screen.type_keys("a\n");
    };
    assert_eq!(
        tokio::join!(second, person).0,
        PermissionAnswer::AllowForSession
    );
}

#[tokio::test]
async fn what_others_print_meanwhile_comes_after_the_answer() {
    let mut terminal = terminal(None);
    let asked = asking!(terminal, question("c", "rm x"));
    let lane = terminal.output.stderr().clone();
    let person = async {
        terminal.screen.shows("[n]o").await;
        lane.lines("another call has ended", Keep::Must);
        terminal.screen.type_keys("y\n");
        terminal.screen.shows("another call has ended").await;
    };
    tokio::join!(asked, person);
    let screen = terminal.screen.contents();
    let lines: Vec<_> = screen.lines().collect();
    assert_eq!(lines.last(), Some(&"another call has ended"), "{screen}");
}

#[tokio::test]
async fn it_waits_for_the_live_view_but_not_for_ever() {
    let shown = watch::Sender::new(String::new());
    let mut terminal = terminal(Some(shown.subscribe()));
    let mut asked = asking!(terminal, question("c", "rm x"));
    assert!(asked.as_mut().now_or_never().is_none());
    assert_eq!(terminal.screen.contents(), "", "the view is not there yet");
    shown.send_replace("c".to_owned());
    let person = async {
        terminal.screen.shows("[n]o").await;
        terminal.screen.type_keys("n\n");
    };
    tokio::join!(asked, person);
    // The view has missed this one.
    let asked = asking!(terminal, question("d", "rm y"));
    let person = async {
        terminal.screen.shows("rm y").await;
        terminal.screen.type_keys("n\n");
    };
    assert_eq!(tokio::join!(asked, person).0, PermissionAnswer::Deny);
}

#[tokio::test]
async fn a_terminal_that_hangs_up_is_a_no() {
    let Terminal {
        mut screen,
        output: _output,
        prompter,
    } = terminal(None);
    let mut asked = prompter.ask(question("c", "rm x"));
    assert!(asked.as_mut().now_or_never().is_none());
    screen.wait_for("[n]o");
    drop(screen);
    assert_eq!(asked.await, PermissionAnswer::Deny);
}
