//! Messages that the user sends while a turn runs.

use std::fs;

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::{FACT_MAX, Place, history, wait::within};

const CTRL_U: &str = "\x15";
const ESCAPE: &str = "\x1b";

/// A command that ignores every signal that can be ignored.
const STUBBORN: &str = "trap '' TERM INT HUP; echo x > begun; while :; do sleep 1; done";

/// An answer that runs this command.
fn runs(command: &str) -> ServerAnswer {
    let arguments = serde_json::json!({ "command": command }).to_string();
    ServerAnswer::stream().tool_call("call_a", "shell", &arguments)
}

fn chat_with<'a>(place: &'a Place, server: &OpenAiServer, args: &str) -> ChatUser<'a> {
    let chat = place.allstop().args("chat --yes --grace 1s --model any");
    let chat = chat.args(args).arg("--base-url").arg(server.url());
    ChatUser::with_model(place, chat, Terminal::new())
}

/// Regression: the message was kept in the conversation, because `keep` also kept a message whose turn had not begun.
#[test]
fn a_message_that_was_taken_back_reaches_no_request() {
    for (policy, waits) in [
        ("interrupt", "waits: WITHDRAWN"),
        ("enqueue", "waits: WITHDRAWN"),
        ("steer", "after this step: WITHDRAWN"),
    ] {
        let place = Place::new();
        let server = OpenAiServer::deciding(|number, _| match number {
            0 => runs(STUBBORN),
            _ => ServerAnswer::text("Fine."),
        });
        let user = chat_with(&place, &server, &format!("--policy {policy}"));
        user.types("first");
        let begun = within(FACT_MAX, || {
            place.work().join("begun").exists().then_some(())
        });
        assert!(begun.is_some(), "{}", user.screen());
        user.types("WITHDRAWN text").waits_for(waits);
        user.presses(CTRL_C)
            .waits_for("the waiting message is back on the input line")
            .waits_for("› WITHDRAWN text")
            .presses(CTRL_U);
        user.waits_for("Nothing is left running");
        user.types("second").waits_for("Fine.").presses(CTRL_D);
        drop(user.leaves_chat());
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{policy}");
        let messages = requests[1].messages();
        history::assert_valid(messages);
        let texts: Vec<String> = messages.iter().map(history::text_of).collect();
        assert!(texts.iter().any(|text| text.contains("first")), "{texts:?}");
        assert!(
            !texts.iter().any(|text| text.contains("WITHDRAWN")),
            "{policy}: {texts:?}"
        );
    }
}

/// By default, a message during a turn ends no work: the model reads it after the current step.
#[test]
fn a_message_during_a_turn_reaches_the_model_after_the_current_step() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|number, _| match number {
        0 => runs("echo x > begun; until [ -e go ]; do sleep 0.05; done"),
        _ => ServerAnswer::text("Both are done."),
    });
    let user = chat_with(&place, &server, "");
    user.types("first");
    user.waits_for("Enter adds to the turn, Esc stops it");
    let begun = within(FACT_MAX, || {
        place.work().join("begun").exists().then_some(())
    });
    assert!(begun.is_some(), "{}", user.screen());
    user.types("ADDED text")
        .waits_for("after this step: ADDED text");
    std::fs::write(place.work().join("go"), "").expect("the folder is writable");
    user.waits_for("Both are done.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_in_order(
        &screen,
        &[
            "› first",
            "› ADDED text  (to the running turn)",
            "Both are done.",
        ],
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let last = requests[1].messages().last().map(history::text_of);
    assert_eq!(last.as_deref(), Some("ADDED text"));
}

/// Regression: `/compact` refused a conversation of fewer than five turns, and failed if the messages to summarise were
/// longer than the context of the model.
#[test]
fn a_full_context_is_compacted_on_request() {
    let place = Place::new();
    let long = "word ".repeat(10_000);
    let server = OpenAiServer::deciding(move |number, request| {
        let size: usize = request
            .messages()
            .iter()
            .map(|m| history::text_of(m).len())
            .sum();
        match number {
            0 => ServerAnswer::text(&long),
            _ if size > 20_000 => ServerAnswer::status(400),
            _ => ServerAnswer::text("A short summary."),
        }
    });
    let user = chat_with(&place, &server, "--policy enqueue");
    user.types("first").waits_for("› first");
    user.waits_for("10 in, 5 out").waits_until_idle();
    user.types("/compact")
        .waits_for("now this summary:\nA short summary.");
    user.types("/history")
        .waits_for("[summary of earlier turns]\nA short summary.");
    user.types("second").waits_for("› second\nA short summary.");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    let requests = server.requests();
    let last = requests.last().expect("a request").messages();
    history::assert_valid(last);
}

/// Regression: Escape and Ctrl-C did not stop `/compact`, and a message that waited for it was sent.
#[test]
fn escape_stops_a_compaction_and_returns_the_waiting_message() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|number, _| match number {
        0 => ServerAnswer::text("An answer."),
        1 => ServerAnswer::stream().stall_before_headers(),
        _ => ServerAnswer::text("Another answer."),
    });
    let user = chat_with(&place, &server, "--policy enqueue");
    user.types("first")
        .waits_for("An answer.")
        .waits_until_idle();
    user.types("/compact")
        .waits_for("summarising older turns, Esc stops it");
    let asked = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() == 2);
    assert!(asked.is_ok());
    user.types("later").waits_for("waits: later");
    user.presses("\x1b").waits_for("cannot compact: stopped");
    user.waits_for("› later").presses("\r");
    user.waits_for("Another answer.").presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(screen.contains("back on the input line"), "{screen}");
}

/// The status names the effect of Enter before the key is pressed. The next chat has the policy of the last one.
#[test]
fn policy_is_remembered_and_its_effect_is_shown_before_enter() {
    let place = Place::new();
    let config = place.path("home").join(".config/allstop/allstop.toml");
    let comments = "# My configuration.\n\n# The limits.\n[limits]\nmax_steps = 9\n";
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, comments).unwrap();
    let user = ChatUser::start_chat(&place, "");
    user.types("hang")
        .waits_for("This sentence")
        .waits_for("Enter adds to the turn");
    user.types("/policy interrupt")
        .waits_for("policy interrupt from the next message on")
        .waits_for("saved in")
        .waits_for("Enter stops the turn and sends");
    user.presses(ESCAPE).waits_for("stopped by you (Esc)");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    let user = ChatUser::start_chat(&place, "");
    user.types("/policy").waits_for("policy interrupt");
    user.types("hang")
        .waits_for("Enter stops the turn and sends");
    user.types("short")
        .waits_for("stopped by your next message")
        .waits_for("A short answer.")
        .presses(CTRL_D);
    drop(user.leaves_chat());
    // Regression: the policy stood above the first comment.
    let written = fs::read_to_string(&config).unwrap();
    let policy = "\n[session]\nfollow_up = \"interrupt\"\n";
    assert_eq!(written, format!("{comments}{policy}"));
}

/// Regression: the chat showed `Nothing to stop in turn 1: already ended`, and hid the reason.
#[test]
fn refusal_of_a_guardrail_names_its_reason() {
    let place = Place::new();
    let check = "[[guardrails]]\non = \"input\"\ncommand = \"echo no secrets please; exit 2\"\n";
    let config = place.file("allstop.toml", check);
    let server = OpenAiServer::start([ServerAnswer::text("Fine.")]);
    let config = format!("--config {}", config.display());
    let user = chat_with(&place, &server, &config);
    user.types("a secret")
        .waits_for("refused by a guardrail: no secrets please")
        .presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert!(!screen.contains("Nothing to stop"), "{screen}");
    assert_eq!(server.requests().len(), 0);
}
