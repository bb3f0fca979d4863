//! Stops in a chat: of `/compact`, of a turn whose output is shown later, and the request to leave.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser, assert_in_order};
use crate::support::terminal::Terminal;
use crate::support::{FACT_MAX, Place, eventually};

const ESCAPE: &str = "\x1b";

fn chat_with<'a>(place: &'a Place, server: &OpenAiServer, args: &str) -> ChatUser<'a> {
    let chat = place.allstop().args("chat --grace 60s --model any");
    let chat = chat.args(args).arg("--base-url").arg(server.url());
    ChatUser::with_model(place, chat, Terminal::new())
}

/// An answer that runs this command.
fn runs(call: &str, command: &str) -> ServerAnswer {
    let arguments = serde_json::json!({ "command": command }).to_string();
    ServerAnswer::stream().tool_call(call, "shell", &arguments)
}

/// Regression: the second compaction was invisible, Escape did not stop it, and it sent a request after a verified stop.
#[test]
fn second_compaction_is_refused_and_escape_stops_the_first() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|number, _| match number {
        0 => ServerAnswer::text("An answer."),
        _ => ServerAnswer::stream().stall_before_headers(),
    });
    let user = chat_with(&place, &server, "");
    user.types("first")
        .waits_for("An answer.")
        .waits_until_idle();
    user.types("/compact")
        .waits_for("summarising older turns, Esc stops it");
    let asked = server.wait_until_blocking(FACT_MAX, |seen| seen.requests.len() == 2);
    assert!(asked.is_ok());
    user.types("/compact")
        .waits_for("still running: the compaction · type /compact again");
    user.presses(CTRL_D)
        .waits_for("still running: the compaction · Ctrl-D or /quit");
    user.presses(ESCAPE)
        .waits_for("cannot compact: stopped")
        .waits_for("Nothing is left running")
        .waits_until_idle();
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    assert_eq!(server.requests().len(), 2);
}

/// Regression: the chat announced the compaction while the turn continued, and began it after the stop of the turn.
#[test]
fn a_turn_prevents_a_compaction() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::stream().stall_before_headers());
    let user = chat_with(&place, &server, "");
    user.types("first").waits_for("Esc stops it");
    user.types("/compact")
        .waits_for("still running: the turn · type /compact again");
    user.presses(ESCAPE)
        .waits_for("stopped by you (Esc)")
        .waits_until_idle();
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    assert_eq!(server.requests().len(), 1);
}

/// Regression: `/output` described a stopped call as running, and the status named keys that had no effect during the
/// stop.
#[test]
fn output_of_a_stopped_call_is_marked_as_stopped() {
    let place = Place::new();
    let stubborn = "trap '' TERM INT HUP; echo two; echo x > begun; while :; do sleep 1; done";
    let server = OpenAiServer::deciding(move |_, _| runs("call_a", stubborn));
    let user = chat_with(&place, &server, "--yes");
    user.types("first");
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    user.types("/output").waits_for("(call_a), running]");
    user.waits_for("Enter adds to the turn, Esc stops it");
    user.presses(ESCAPE)
        .waits_for("stopping, Ctrl-C uses force");
    assert!(!user.screen().contains("Enter adds"), "{}", user.screen());
    user.presses_until(CTRL_C, "using force on the remaining work");
    user.waits_for("Nothing is left running; verified.");
    user.waits_until_idle();
    for command in ["/output call_a", "/output"] {
        user.types(command);
    }
    user.waits_for_twice("(call_a), stopped]");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}

/// Regression: after the stop of the named work, the confirmation held for the next turn, and one Ctrl-D stopped it.
#[test]
fn confirmation_to_leave_ends_with_the_named_work() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("hang").waits_for("This sentence");
    user.presses(CTRL_D).waits_for("still running: the turn");
    user.presses(ESCAPE)
        .waits_for("stopped by you (Esc)")
        .waits_until_idle();
    user.types("hang").waits_for("Enter adds to the turn");
    user.presses(CTRL_D)
        .waits_for_twice("still running: the turn");
    user.presses(ESCAPE).waits_until_idle().presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_eq!(
        screen.matches("stopped by you (Esc)").count(),
        2,
        "{screen}"
    );
}

/// Regression: each denied call had the line `denied: shell`, and denied calls of background sub-agents had none.
#[test]
fn denied_calls_are_named_also_those_of_background_sub_agents() {
    let place = Place::new();
    let config = "[permissions]\nallow = ['agent']\ndeny = ['shell']\n";
    let config = place.file("allstop.toml", config);
    let script = place.script(
        "turns:
  - when: both
    replies:
      - calls:
          - {tool: shell, arguments: {command: make one}}
          - {tool: shell, arguments: {command: make two}}
      - {text: Neither ran.}
  - when: delegate
    replies:
      - calls: [{tool: agent, arguments: {prompt: touch it, background: true}}]
      - {text: It is delegated.}
  - when: touch it
    replies:
      - calls: [{tool: shell, arguments: {command: touch it}}]
      - {text: It was denied.}
",
    );
    let chat = place.allstop().args("chat --config").arg(config);
    let user = ChatUser::with_model(&place, chat.arg("--model").arg(script), Terminal::new());
    user.types("both").waits_for("denied: shell: make two");
    user.types("delegate").waits_for("bg_1 has ended");
    user.waits_for("denied: shell (bg_1/").waits_until_idle();
    user.presses(CTRL_D);
    let (_, screen) = user.leaves_chat();
    assert_in_order(
        &screen,
        &["denied: shell: make one", "denied: shell: make two"],
    );
}
