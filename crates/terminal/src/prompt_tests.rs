//! Permission questions on a terminal: answered, repeated, withdrawn, and asked without a person at the terminal.

use std::time::Duration;

use super::*;
use crate::test_screen::TestScreen;

struct TestTerminal {
    screen: TestScreen,
    output: OutputStreams,
    prompt: QuestionPrompt,
}

fn terminal() -> TestTerminal {
    terminal_named("xterm")
}

fn terminal_named(name: &str) -> TestTerminal {
    let screen = TestScreen::open(24, 80);
    let output = OutputStreams::new(screen.terminal(), screen.terminal()).unwrap();
    let environment = Environment::read(|variable| (variable == "TERM").then(|| name.into()));
    let device = TerminalDevice::open(&screen.path).unwrap();
    let queue = output.terminal().unwrap().clone();
    let prompt = QuestionPrompt::new(queue, device, &environment).unwrap();
    TestTerminal {
        screen,
        output,
        prompt,
    }
}

impl TestTerminal {
    /// Asks a question like `run` does.
    fn asks(&mut self, number: u64, command: &str) {
        self.prompt.begin();
        let call = format!("call_{number}");
        let line = format!("? Allow {command} ({call})");
        self.output.stderr().lines(line, OutputPriority::Required);
        self.prompt.open(TerminalQuestion {
            number,
            call,
            always: "exactly this command".to_owned(),
            rows_left: 0,
        });
    }
}

/// Waits until the screen shows this text. The question accepts an answer as soon as its prompt is on the screen.
async fn shows(screen: &mut TestScreen, prompt: &mut QuestionPrompt, text: &str) {
    tokio::select! {
        answer = prompt.next() => panic!("no answer yet: {answer:?}"),
        () = screen.shows(text) => {}
    }
}

#[tokio::test]
async fn each_answer_is_understood() {
    for name in ["xterm", "dumb"] {
        for (typed, answer) in [
            (" YES \n", QuestionAnswer::Yes),
            ("always\n", QuestionAnswer::Always),
            ("no\n", QuestionAnswer::No(String::new())),
            ("\u{4}", QuestionAnswer::No(String::new())),
        ] {
            let mut terminal = terminal_named(name);
            terminal.asks(1, "shell: rm -rf x");
            shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
            terminal.screen.type_keys(typed);
            assert_eq!(
                terminal.prompt.next().await,
                PromptReply::Answer(1, answer),
                "{typed:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_question_reads_like_this() {
    let mut terminal = terminal();
    terminal.asks(1, "shell: rm x");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.screen.type_keys("maybe\ry\r");
    let answer = PromptReply::Answer(1, QuestionAnswer::Yes);
    assert_eq!(terminal.prompt.next().await, answer);
    let queue = terminal.output.stderr();
    queue.lines("  yes, once", OutputPriority::Required);
    terminal.asks(2, "shell: rm y");
    // From here on, the prompt of the first question is gone.
    terminal.screen.wait_for("shell: rm y");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.screen.type_keys("ye");
    shows(&mut terminal.screen, &mut terminal.prompt, "> ye").await;
    insta::assert_snapshot!(terminal.screen.contents());
}

#[tokio::test]
async fn a_withdrawn_question_leaves_the_terminal_to_the_shell() {
    let mut terminal = terminal();
    terminal.asks(1, "shell: rm x");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.screen.type_keys("ye");
    shows(&mut terminal.screen, &mut terminal.prompt, "> ye").await;
    terminal.prompt.close(1);
    terminal
        .screen
        .wait_until(|screen| !screen.contains("[n]o"));
    terminal.screen.type_keys("ls\n");
    // The terminal echoes again, and the partly typed word is gone.
    terminal.screen.wait_for("ls");
    assert_eq!(terminal.screen.unread(), "ls\n");
}

#[tokio::test]
async fn text_typed_before_the_question_is_no_answer() {
    for name in ["xterm", "dumb"] {
        let mut terminal = terminal_named(name);
        terminal.screen.type_keys("y\n");
        terminal.screen.wait_for("y");
        terminal.asks(1, "shell: rm x");
        shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
        terminal.screen.type_keys("n\n");
        assert_eq!(
            terminal.prompt.next().await,
            PromptReply::Answer(1, QuestionAnswer::No(String::new()))
        );
    }
}

#[tokio::test]
async fn questions_are_answered_one_after_another() {
    for name in ["xterm", "dumb"] {
        let mut terminal = terminal_named(name);
        for number in 1..=3 {
            terminal.asks(number, "shell: rm x");
        }
        shows(&mut terminal.screen, &mut terminal.prompt, "call_1: ").await;
        terminal.prompt.close(1);
        shows(&mut terminal.screen, &mut terminal.prompt, "call_2: ").await;
        terminal.screen.type_keys("always\n");
        let answer = terminal.prompt.next().await;
        assert_eq!(answer, PromptReply::Answer(2, QuestionAnswer::Always));
        shows(&mut terminal.screen, &mut terminal.prompt, "call_3: ").await;
        terminal.screen.type_keys("\u{4}");
        assert_eq!(
            terminal.prompt.next().await,
            PromptReply::Answer(3, QuestionAnswer::No(String::new()))
        );
    }
}

#[tokio::test]
async fn other_output_stands_above_the_reply() {
    let mut terminal = terminal();
    terminal.asks(1, "shell: rm x");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    let queue = terminal.output.stderr();
    queue.lines("another call has ended", OutputPriority::Required);
    terminal.screen.wait_for("another call has ended");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    let screen = terminal.screen.contents();
    let lines: Vec<_> = screen.lines().collect();
    assert!(lines[1] == "another call has ended", "{screen}");
    assert!(lines[2].contains("[n]o"), "{screen}");
}

#[tokio::test]
async fn a_terminal_that_hangs_up_is_a_no() {
    for name in ["xterm", "dumb"] {
        let TestTerminal {
            mut screen,
            output,
            prompt,
        } = terminal_named(name);
        let mut terminal = TestTerminal {
            screen: TestScreen::open(24, 80),
            output,
            prompt,
        };
        terminal.asks(1, "shell: rm x");
        terminal.asks(2, "shell: rm y");
        shows(&mut screen, &mut terminal.prompt, "[n]o").await;
        drop(screen);
        assert_eq!(
            terminal.prompt.next().await,
            PromptReply::Answer(1, QuestionAnswer::No(String::new()))
        );
        assert_eq!(
            terminal.prompt.next().await,
            PromptReply::Answer(2, QuestionAnswer::No(String::new()))
        );
    }
}

#[tokio::test]
async fn a_suspended_question_leaves_the_terminal_and_begins_its_quiet_time_again() {
    let mut terminal = terminal();
    terminal.asks(1, "shell: rm x");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.prompt.suspend();
    terminal.screen.type_keys("ls\n");
    assert_eq!(terminal.screen.unread(), "ls\n");
    terminal.prompt.resume();
    // The quiet time begins again, so a key typed together with `fg` is no answer.
    terminal.screen.type_keys("y\r");
    let early = tokio::time::timeout(Duration::from_millis(500), terminal.prompt.next());
    assert!(early.await.is_err());
}

/// Regression: a person who was typing when the question appeared answered it.
#[tokio::test]
async fn keys_without_a_pause_after_the_question_are_no_answer() {
    let mut terminal = terminal();
    terminal.asks(1, "shell: rm x");
    terminal.screen.type_keys("y\r");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.screen.type_keys("n\r");
    let no = QuestionAnswer::No(String::new());
    assert_eq!(terminal.prompt.next().await, PromptReply::Answer(1, no));
}

/// Regression: on a terminal that returns whole lines, the end of a message that was begun before the question allowed
/// the call.
#[tokio::test]
async fn on_a_terminal_of_lines_a_permission_needs_a_whole_word() {
    let mut terminal = terminal_named("dumb");
    terminal.asks(1, "shell: rm x");
    shows(&mut terminal.screen, &mut terminal.prompt, "[n]o").await;
    terminal.screen.type_keys("y\na\n");
    let usage = "answer yes, always, n or n REASON";
    shows(&mut terminal.screen, &mut terminal.prompt, usage).await;
    terminal.screen.type_keys("yes\n");
    let yes = PromptReply::Answer(1, QuestionAnswer::Yes);
    assert_eq!(terminal.prompt.next().await, yes);
}
