//! `/model`, `/clear`, `/resume` and `/export`: a chat goes on in another one, in the same process.

use crate::support::chat_user::{CTRL_C, CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::{Place, eventually};
use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};

/// Regression for the whole family: the next chat opens the same store, and nothing of the first chat stays open.
#[test]
fn a_chat_goes_on_with_another_model_in_a_new_session_and_in_an_old_one() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short").waits_for("A short answer.");
    let first = place.only_session();
    let other = place.script(
        "turns:\n  - {when: again, replies: [{text: The other model.}]}\n  - {when: fresh, replies: [{text: The other model.}]}",
    );
    user.types(&format!("/model {other}"));
    user.types("again").waits_for("The other model.");
    user.types("/model").waits_for("script::script-");
    user.types("/clear").waits_for("/help lists");
    user.types("fresh").waits_for_twice("The other model.");
    let short = &first[first.len() - 8..];
    user.types(&format!("/resume {short}"))
        .waits_for(&format!("session {first}"));
    user.types("/export out.md")
        .waits_for("the conversation is in out.md");
    user.types("/export out.md")
        .waits_for("cannot write out.md: the file exists");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    let exported = std::fs::read_to_string(place.work().join("out.md")).expect("a file");
    let texts = ["short", "A short answer.", "again", "The other model."];
    assert!(
        texts.iter().all(|text| exported.contains(text)),
        "{exported}"
    );
    assert!(!exported.contains("fresh"), "{exported}");
}

/// Regression: keys were lost that the user typed before the earlier chat was back.
#[test]
fn a_next_chat_that_cannot_begin_leaves_the_chat_as_it_was() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short").waits_for("A short answer.");
    user.types("/model script:nosuch.yaml")
        .waits_for("nosuch.yaml");
    user.waits_for("name an existing script");
    user.types("short").waits_for_twice("A short answer.");
    user.types("/resume 99999").waits_for("99999` not found");
    user.types("/history").presses(CTRL_D);
    drop(user.leaves_chat());
    assert_eq!(place.only_session().len(), 26);
}

#[test]
fn models_of_the_server_are_listed() {
    let place = Place::new();
    let list = r#"{"data": [{"id": "small"}, {"id": "large"}]}"#;
    let server = OpenAiServer::start([
        ServerAnswer::page(200, "application/json", list),
        ServerAnswer::page(404, "application/json", "{}"),
    ]);
    let chat = place.allstop().args("chat --model small --base-url");
    let user = ChatUser::with_model(&place, chat.arg(server.url()), Terminal::new());
    user.types("/model")
        .waits_for("model small · /model NAME")
        .waits_for("  large");
    user.types("/model")
        .waits_for("the list of models is not available: ");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    assert_eq!(server.requests()[0].line, "GET /v1/models");
}

/// Regression: a model without a provider in its name went to another server than the configured one.
#[test]
fn another_model_stays_on_the_configured_server() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|_, _| ServerAnswer::text("From the server."));
    let url = server.url();
    let config = place.file(
        "c.toml",
        format!("[model]\nname = 'one'\nbase_url = '{url}'\n"),
    );
    let chat = place.allstop().args("chat --config").arg(config);
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("hello").waits_for("From the server.");
    user.types("/model two").types("again");
    user.waits_for_twice("From the server.");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
    let models: Vec<_> = server
        .requests()
        .iter()
        .map(|asked| asked.body["model"].clone())
        .collect();
    assert_eq!(models, ["one", "two"]);
}

/// Regression: Escape in the list of sessions ended the chat.
#[test]
fn escape_in_the_list_of_sessions_leads_back() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "");
    user.types("short").waits_for("A short answer.");
    user.types("/resume").waits_for("Choose a session");
    user.presses("\x1b").waits_for_twice("/help lists");
    user.types("/history").waits_for_twice("A short answer.");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}

#[test]
fn running_work_prevents_another_chat() {
    let place = Place::new();
    let user = ChatUser::start_chat(&place, "--yes");
    user.types("stubborn");
    let begun = place.work().join("begun");
    eventually("the call", || begun.exists().then_some(()));
    user.types("/clear").waits_for("/stop all stops it");
    user.presses(CTRL_C).presses(CTRL_C);
    user.waits_for("stopped by you").presses(CTRL_D);
    drop(user.leaves_chat());
}
