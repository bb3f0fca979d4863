//! Conversations that are longer than the context window of the model: shortened within a turn, summarised, and repeated
//! once after the provider has refused a request.

use allstop_testkit::openai_server::{OpenAiServer, Received, ServerAnswer};
use serde_json::{Value, json};

use crate::support::chat_user::{CTRL_D, ChatUser};
use crate::support::terminal::Terminal;
use crate::support::wait::eventually;
use crate::support::{FACT_MAX, Place, Signal, history};

const ESCAPE: &str = "\x1b";

/// Beginning of the prompt for a summary.
const ASKS_SUMMARY: &str = "Summarise the conversation";

/// Bytes of all texts in a request.
fn size(request: &Received) -> usize {
    let texts = request.messages().iter().map(history::text_of);
    texts.map(|text| text.len()).sum()
}

fn last_text(request: &Received) -> String {
    let last = request.messages().last();
    last.map(history::text_of).unwrap_or_default()
}

/// Last word of the last message. A request joins a message with the messages of the user before it.
fn last_word(request: &Received) -> String {
    let text = last_text(request);
    let word = text.rsplit(|c: char| !c.is_alphabetic()).next();
    word.unwrap_or_default().to_owned()
}

fn asks_summary(request: &Received) -> bool {
    last_text(request).contains(ASKS_SUMMARY)
}

/// The answer of a provider to a request that is longer than the context window.
fn too_long() -> ServerAnswer {
    let body = json!({"error": {
        "message": "This model's maximum context length is 20000 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }});
    ServerAnswer::page(400, "application/json", body.to_string())
}

/// A server that refuses requests of more than `bytes_max` bytes.
fn server(
    bytes_max: usize,
    answer: impl Fn(&Received) -> ServerAnswer + Send + Sync + 'static,
) -> OpenAiServer {
    OpenAiServer::deciding(move |_, request| {
        if size(request) > bytes_max {
            too_long()
        } else {
            answer(request)
        }
    })
}

/// Answers with commands of 20,000 bytes of output until this number of results is in the request.
fn reads(request: &Received, results: usize) -> ServerAnswer {
    let is_result = |message: &&Value| message["role"] == "tool";
    match request.messages().iter().filter(is_result).count() {
        done if done < results => {
            let command = format!("head -c 20000 /dev/zero | tr '\\0' {done}; echo end {done}");
            let arguments = json!({ "command": command }).to_string();
            ServerAnswer::stream().tool_call(&format!("call_{done}"), "shell", &arguments)
        }
        _ => ServerAnswer::text("All is read."),
    }
}

/// Texts of the messages in the requests that the server accepted.
fn accepted(server: &OpenAiServer, bytes_max: usize) -> Vec<Vec<Value>> {
    let requests = server.requests();
    let accepted = requests.iter().filter(|request| size(request) <= bytes_max);
    accepted
        .map(|request| request.messages().to_vec())
        .collect()
}

/// An answer of 40,000 bytes, which ends with `END-` and the message.
fn long_answer(message: &str) -> ServerAnswer {
    ServerAnswer::text(&format!("{}END-{message}", "long ".repeat(8_000)))
}

fn window_config(place: &Place, tokens: u64) -> std::path::PathBuf {
    place.file(
        "allstop.toml",
        format!("[model]\ncontext_window = {tokens}\n"),
    )
}

/// Regression: a turn with many tool results ended with the error of the provider.
#[test]
fn long_turn_stays_within_the_known_window() {
    let place = Place::new();
    let config = window_config(&place, 20_000);
    let server = server(80_000, |request| reads(request, 8));
    let run = place
        .run()
        .args("--json --model any --base-url")
        .arg(server.url());
    let ended = run.arg("--config").arg(config).arg("read").end().ok();
    assert_eq!(ended.envelope()["output"], "All is read.", "{ended:#?}");
    let requests = server.requests();
    assert_eq!(requests.len(), 9, "the provider refused no request");
    for request in &requests {
        history::assert_valid(request.messages());
    }
    let last = requests[8].messages();
    let texts: Vec<String> = last.iter().map(history::text_of).collect();
    let is_short = |text: &&String| text.contains("bytes of this result are left out");
    assert!(texts.iter().filter(is_short).count() >= 5, "{texts:?}");
    assert!(
        texts.last().is_some_and(|text| text.len() > 20_000),
        "the newest result is whole"
    );
    // The conversation has all results.
    let shown = place.sessions().args("show last --full --json").end().ok();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let calls = shown["calls"].as_array().expect("calls");
    let is_whole = |call: &&Value| {
        call["result"]
            .as_str()
            .is_some_and(|text| text.len() > 20_000)
    };
    assert_eq!(calls.iter().filter(is_whole).count(), 8);
}

/// Regression: after the error of a full context, the turn ended.
#[test]
fn refused_request_is_shortened_and_repeated_once() {
    let place = Place::new();
    let server = server(70_000, |request| reads(request, 8));
    let run = place
        .run()
        .args("--json --model any --base-url")
        .arg(server.url());
    let ended = run.arg("read").end().ok();
    assert_eq!(ended.envelope()["output"], "All is read.", "{ended:#?}");
    let requests = server.requests();
    let sizes: Vec<usize> = requests.iter().map(size).collect();
    let refused = sizes.iter().filter(|size| **size > 70_000).count();
    assert!((1..=2).contains(&refused), "{sizes:?}");
    assert!(
        sizes
            .windows(2)
            .all(|pair| pair[0] <= 70_000 || pair[1] <= 70_000),
        "each refused request is repeated once, and shorter: {sizes:?}"
    );
    for request in &requests {
        history::assert_valid(request.messages());
    }
}

/// Older turns without tool results are summarised, within the turn if the provider refuses the request. The
/// conversation then begins with the summary, also for the next process.
#[test]
fn older_turns_are_summarised_after_a_refusal() {
    let place = Place::new();
    let server = server(70_000, |request| match last_word(request).as_str() {
        _ if asks_summary(request) => ServerAnswer::text("SHORT summary"),
        "third" => ServerAnswer::text("Third answer."),
        "fourth" => ServerAnswer::text("Fourth answer."),
        other => long_answer(other),
    });
    let run = || {
        place
            .run()
            .args("--json --model any --base-url")
            .arg(server.url())
    };
    let ended = run().args("first --then second --then third").end().ok();
    assert_eq!(ended.envelope()["output"], "Third answer.", "{ended:#?}");
    let asked = server.requests().len();
    let texts = |messages: &[Value]| messages.iter().map(history::text_of).collect::<Vec<_>>();
    let third = accepted(&server, 70_000).pop().expect("a request");
    assert!(
        texts(&third)[0].contains("SHORT summary"),
        "{:?}",
        texts(&third)
    );
    let ended = run().args("--continue fourth").end().ok();
    assert_eq!(ended.envelope()["output"], "Fourth answer.", "{ended:#?}");
    assert_eq!(server.requests().len(), asked + 1, "no second summary");
    let fourth = accepted(&server, 70_000).pop().expect("a request");
    let (third, fourth) = (texts(&third), texts(&fourth));
    assert_eq!(
        fourth[..third.len()],
        third[..],
        "the conversation of the live session"
    );
    assert_eq!(fourth[third.len()..], ["Third answer.", "fourth"]);
    let shown = place.sessions().args("show last").end().ok().stdout;
    assert!(
        shown.contains("a summary replaces the oldest turns"),
        "{shown}"
    );
}

/// With a known window, the conversation is summarised before the turn, and no request is refused.
#[test]
fn long_conversation_is_summarised_before_a_turn() {
    let place = Place::new();
    let config = window_config(&place, 20_000);
    let server = server(80_000, |request| match last_word(request).as_str() {
        _ if asks_summary(request) => ServerAnswer::text("SHORT summary"),
        "third" => ServerAnswer::text("Third answer."),
        other => long_answer(other),
    });
    let user = chat(&place, &server, Some(&config));
    user.types("first").waits_for("END-first");
    user.types("second").waits_for("END-second");
    user.types("third")
        .waits_for("2 older turns will be summarised")
        .waits_for("Third answer.")
        .presses(CTRL_D);
    drop(user.leaves_chat());
    assert!(
        server
            .requests()
            .iter()
            .all(|request| size(request) <= 80_000)
    );
}

/// If the shorter request is refused too, the error names the remedies.
#[test]
fn second_refusal_ends_the_turn_with_a_remedy() {
    let place = Place::new();
    let server = OpenAiServer::deciding(|number, request| match number {
        0..3 => reads(request, 3),
        _ => too_long(),
    });
    let run = place
        .run()
        .args("--json --model any --base-url")
        .arg(server.url());
    let ended = run.arg("read").end();
    assert_eq!(ended.code, 1, "{ended:#?}");
    let error = &ended.envelope()["error"];
    assert_eq!(error["kind"], "context_length", "{error:#}");
    let hint = error["hint"].as_str().expect("a hint");
    assert!(hint.contains("larger context window"), "{hint}");
    assert_eq!(server.requests().len(), 5, "one repetition");
}

fn chat<'a>(
    place: &'a Place,
    server: &OpenAiServer,
    config: Option<&std::path::Path>,
) -> ChatUser<'a> {
    let chat = place
        .allstop()
        .args("chat --yes --policy enqueue --grace 1s --model any --base-url");
    let chat = chat.arg(server.url());
    let chat = match config {
        Some(config) => chat.arg("--config").arg(config),
        None => chat,
    };
    ChatUser::with_model(place, chat, Terminal::new())
}

/// A server whose second and later turns are too long, and whose first summary never ends.
fn stalled_summary() -> OpenAiServer {
    let stalls = std::sync::atomic::AtomicBool::new(true);
    server(70_000, move |request| match last_word(request).as_str() {
        _ if asks_summary(request) => {
            if stalls.swap(false, std::sync::atomic::Ordering::Relaxed) {
                ServerAnswer::text("Half a").stall()
            } else {
                ServerAnswer::text("SHORT summary")
            }
        }
        text @ ("first" | "second") => long_answer(text),
        other => ServerAnswer::text(&format!("Answer to {other}.")),
    })
}

fn wait_for_summary(server: &OpenAiServer) {
    let is_answered = |request: &Received| asks_summary(request) && size(request) <= 70_000;
    let asked = || server.requests().iter().any(is_answered).then_some(());
    eventually("the request for a summary", asked);
}

/// A stop during the summary leaves the conversation as it was, and the next message works.
#[test]
fn stop_during_a_summary_leaves_the_conversation_unchanged() {
    // Within a turn, after a refused request; and before a turn.
    for window in [None, Some(20_000)] {
        stop_during_a_summary(window);
    }
}

fn stop_during_a_summary(window: Option<u64>) {
    let place = Place::new();
    let config = window.map(|tokens| window_config(&place, tokens));
    let server = stalled_summary();
    let user = chat(&place, &server, config.as_deref());
    user.types("first").waits_for("END-first");
    user.types("second").waits_for("END-second");
    user.types("third").waits_for("will be summarised");
    wait_for_summary(&server);
    user.presses(ESCAPE).waits_for("stopped by you (Esc)");
    user.waits_for("Nothing is left running");
    user.types("fourth")
        .waits_for("Answer to fourth.")
        .presses(CTRL_D);
    drop(user.leaves_chat());
    let requests = server.requests();
    let summaries: Vec<_> = requests
        .iter()
        .filter(|request| asks_summary(request) && size(request) <= 70_000)
        .collect();
    assert_eq!(summaries.len(), 2);
    let of = |request: &Received| {
        let messages = request.messages().iter().map(history::text_of);
        messages.collect::<Vec<_>>()
    };
    assert_eq!(
        of(summaries[0]),
        of(summaries[1]),
        "the conversation is unchanged"
    );
}

/// A crash during the summary leaves the conversation as it was, and the session continues.
#[test]
fn crash_during_a_summary_leaves_the_conversation_unchanged() {
    let place = Place::new();
    let server = stalled_summary();
    let run = || {
        place
            .run()
            .args("--json --model any --base-url")
            .arg(server.url())
    };
    let _two_turns = run().args("first --then second").end().ok();
    let mut running = run().args("--continue third").start();
    wait_for_summary(&server);
    running.signal(Signal::KILL);
    let _killed = running.end(FACT_MAX);
    let shown = place.sessions().args("show last --json").end().ok();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(shown["summed_up"], false, "{shown:#}");
    let ended = run().args("--continue fourth").end().ok();
    assert_eq!(
        ended.envelope()["output"],
        "Answer to fourth.",
        "{ended:#?}"
    );
    let shown = place.sessions().args("show last --json").end().ok();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!(shown["summed_up"], true, "{shown:#}");
    let last = server.requests().pop().expect("a request");
    history::assert_valid(last.messages());
}
