//! Tokens and cost of a session: in the status, in `/cost` and `/status`, and in JSON.

use allstop_testkit::openai_server::{OpenAiServer, ServerAnswer};
use serde_json::{Value, json};

use crate::support::Place;
use crate::support::chat_user::{CTRL_D, ChatUser};
use crate::support::terminal::Terminal;

const PRICED: &str = "[model]
context_window = 20000
price = { input = 2.0, cached_input = 0.5, output = 8.0, currency = '$' }
";

/// An answer with this usage, a part of it from the cache.
fn answer() -> ServerAnswer {
    let usage = json!({"choices": [], "usage": {
        "prompt_tokens": 10_000,
        "completion_tokens": 1_000,
        "prompt_tokens_details": {"cached_tokens": 8_000},
    }});
    ServerAnswer::text("Fine.")
        .without_usage()
        .event(&usage.to_string())
}

#[test]
fn cost_is_in_json_if_the_price_is_known() {
    let place = Place::new();
    let server = OpenAiServer::start([answer()]);
    let config = place.file("allstop.toml", PRICED);
    let run = || {
        place
            .run()
            .args("--json --model any --base-url")
            .arg(server.url())
    };
    let ended = run().arg("--config").arg(&config).arg("hello").end().ok();
    let envelope = ended.envelope();
    // 2,000 input tokens, 8,000 cached, 1,000 output.
    assert_eq!(envelope["cost"], json!({"amount": 0.016, "currency": "$"}));
    assert_eq!(envelope["usage"]["cached_input_tokens"], 8_000);
    let ended = run().arg("hello").end().ok();
    assert_eq!(ended.envelope()["cost"], Value::Null);
    let shown = place.sessions().args("show last").end().ok().stdout;
    assert!(shown.contains("cost: price unknown"), "{shown}");
}

#[test]
fn chat_shows_cost_context_and_status() {
    let place = Place::new();
    let server = OpenAiServer::start([answer()]);
    let config = place.file("allstop.toml", PRICED);
    let chat = place.allstop().args("chat --yes --model any --base-url");
    let chat = chat.arg(server.url()).arg("--config").arg(config);
    let user = ChatUser::with_model(&place, chat, Terminal::new());
    user.types("/cost")
        .waits_for("no model was called in this session");
    user.types("hello")
        .waits_for("Fine.")
        .waits_for("55 % of the context · $0.0160");
    user.types("/cost")
        .waits_for_words("any: 10,000 tokens in (8,000 cached), 1,000 out: $0.0160");
    user.types("/status")
        .waits_for_words("context 11,000 of 20,000 tokens, 55 %")
        .waits_for_words("background nothing");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}

/// A narrow terminal shows the important items in a short form.
#[test]
fn narrow_status_keeps_context_and_cost() {
    let place = Place::new();
    let server = OpenAiServer::start([answer()]);
    let config = place.file("allstop.toml", PRICED);
    let chat = place.allstop().args("chat --yes --model any --base-url");
    let chat = chat.arg(server.url()).arg("--config").arg(config);
    let terminal = Terminal::new();
    terminal.resize((40, 20));
    let user = ChatUser::with_model(&place, chat, terminal);
    user.types("hello")
        .waits_for("ask --yes · any · 55 % · $0.0160");
    user.presses(CTRL_D);
    drop(user.leaves_chat());
}
