//! Script files: the selection of replies, the content of replies, and errors in a script.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::message::Arguments;
use allstop_core::{Image, Message, ToolCall, ToolResult, Usage};
use allstop_model::{
    FinishReason, Model, ModelErrorKind, ModelEvent, ModelRequest, Reply, ScriptedModel,
};
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{all_of, ask, text_of};

fn script(text: &str) -> ScriptedModel {
    ScriptedModel::parse("test.yaml", text).unwrap()
}

fn wrong(text: &str) -> String {
    let error = ScriptedModel::parse("test.yaml", text).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Script);
    assert!(error.hint.is_some());
    error.message
}

fn assistant(text: &str) -> Message {
    Message::Assistant {
        text: text.into(),
        tool_calls: vec![],
    }
}

fn conversation(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    ModelRequest::new(messages.into_iter().map(Arc::new).collect())
}

async fn answer(model: &ScriptedModel, messages: impl IntoIterator<Item = Message>) -> String {
    let (events, error) = all_of(model, conversation(messages)).await;
    match error {
        Some(error) => format!("{:?}", error.kind),
        None => text_of(&events),
    }
}

#[tokio::test]
async fn main_list_follows_the_conversation() {
    let model = script("replies: [{text: one}, {text: two}, {text: three}]");
    let user = || Message::user("hi");
    for _ in 0..3 {
        // Equal requests always get equal replies. So after a rollback, the turn gets the same reply again.
        assert_eq!(answer(&model, [user()]).await, "one");
        assert_eq!(answer(&model, [user(), assistant("one")]).await, "two");
        assert_eq!(
            answer(&model, [user(), assistant("one"), user()]).await,
            "two"
        );
    }
    let three = [user(), assistant("1"), assistant("2")];
    assert_eq!(answer(&model, three.clone()).await, "three");
    let past_the_end = three.into_iter().chain([assistant("3")]);
    let (_, error) = all_of(&model, conversation(past_the_end)).await;
    let error = error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::Script);
    assert!(
        error.message.contains("3 replies") && error.message.contains("number 4"),
        "{error}"
    );
}

#[tokio::test]
async fn turns_answer_matching_messages() {
    let model = script(
        "
        turns:
          - when: list
            replies: [{text: listing}, {text: listed}]
        replies: [{text: first}, {text: second}]
        ",
    );
    let user = Message::user;
    assert_eq!(answer(&model, [user("hello")]).await, "first");
    assert_eq!(answer(&model, [user("please list it")]).await, "listing");
    let listing = [user("please list it"), assistant("listing")];
    assert_eq!(answer(&model, listing.clone()).await, "listed");
    // The main list continues as if the other turn had not happened.
    let after = |text| {
        listing
            .clone()
            .into_iter()
            .chain([assistant("listed"), user(text)])
    };
    assert_eq!(answer(&model, after("hello")).await, "first");
    assert_eq!(answer(&model, after("list again")).await, "listing");
    // The turn has no reply for a third step.
    let more = listing.clone().into_iter().chain([assistant("listed")]);
    assert_eq!(answer(&model, more).await, "Script");
}

#[tokio::test]
async fn order_of_calls_plays_the_next_reply() {
    let model = script("order: calls\nreplies: [{text: one}, {text: two}]");
    assert_eq!(answer(&model, [Message::user("hi")]).await, "one");
    assert_eq!(answer(&model, [Message::user("hi")]).await, "two");
    assert_eq!(answer(&model, [Message::user("hi")]).await, "Script");
}

#[tokio::test]
async fn reply_can_have_every_kind_of_event() {
    let model = script(
        r#"
        replies:
          - reasoning: hmm
            chunks: [{text: "one "}, {reasoning: aha}, {text: two}]
            calls:
              - {tool: shell, arguments: {command: ls, n: 3, deep: [true, null]}}
              - {tool: shell, malformed_arguments: '{"comm', id: mine}
              - tool: noop
            usage: {input_tokens: 7, output_tokens: 8}
            finish: length
        "#,
    );
    let (events, error) = all_of(&model, ask("hi")).await;
    assert_eq!(error, None);
    let call = |id: &str, name: &str, arguments| {
        ModelEvent::ToolCall(ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
        })
    };
    let json = Arguments::from(json!({"command": "ls", "n": 3, "deep": [true, null]}));
    assert_eq!(
        events,
        [
            ModelEvent::Reasoning("hmm".into()),
            ModelEvent::Text("one ".into()),
            ModelEvent::Reasoning("aha".into()),
            ModelEvent::Text("two".into()),
            call("call_1_1", "shell", json),
            call("mine", "shell", Arguments::Malformed(r#"{"comm"#.into())),
            call("call_1_2", "noop", Arguments::from(json!({}))),
            ModelEvent::Usage(Usage {
                input_tokens: 7,
                cached_input_tokens: 0,
                cache_write_input_tokens: 0,
                output_tokens: 8,
                estimated: false
            }),
            ModelEvent::End(FinishReason::Length),
        ]
    );
}

#[tokio::test]
async fn turn_can_ask_for_a_number_of_images() {
    let model = script(
        "turns: [{images: 1, replies: [{text: one}]}, {images: 0, replies: [{text: none}]}]",
    );
    let image = Image::new(*b"\x89PNG\r\n\x1a\n").unwrap();
    let with_image = Message::User {
        text: "".into(),
        images: image.into(),
    };
    for (message, expected) in [(with_image, "one"), (Message::user("hi"), "none")] {
        let (events, _) = all_of(&model, conversation([message])).await;
        assert_eq!(events[0], ModelEvent::Text(expected.into()));
    }
}

#[tokio::test]
async fn generated_ids_are_unique_in_the_conversation() {
    let model = script("turns: [{replies: [{calls: [{tool: t}, {tool: t}]}, {text: done}]}]");
    let (first, _) = all_of(&model, ask("hi")).await;
    let call = |event: &ModelEvent| match event {
        ModelEvent::ToolCall(call) => call.clone(),
        other => panic!("a call, not {other:?}"),
    };
    let calls: Vec<_> = first[..2].iter().map(call).collect();
    let results = calls.iter().map(|call| {
        let content = "ok".into();
        Message::Tool(ToolResult {
            call_id: call.id.clone(),
            content,
            is_error: false,
            images: allstop_core::Images::default(),
        })
    });
    let turn = [
        Message::user("hi"),
        Message::Assistant {
            text: "".into(),
            tool_calls: calls.clone(),
        },
    ];
    let next = turn
        .into_iter()
        .chain(results)
        .chain([assistant("done"), Message::user("again")]);
    let (second, _) = all_of(&model, conversation(next)).await;
    let mut ids: Vec<_> = second[..2].iter().map(|event| call(event).id).collect();
    ids.extend(calls.into_iter().map(|call| call.id));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn pieces_arrive_after_their_delays() {
    let began = Instant::now();
    let model = script("replies: [{text: 'one two three', delay: 50ms}]");
    let mut stream = model.stream(ask("hi")).await.unwrap();
    for (word, ms) in [("one ", 50), ("two ", 100), ("three", 150)] {
        assert_eq!(
            stream.events.next().await.unwrap().unwrap(),
            ModelEvent::Text(word.into())
        );
        assert_eq!(began.elapsed(), Duration::from_millis(ms));
    }
    let model = script("replies: [{chunks: [{text: a, after: 2s}, {text: b}], delay: 1s}]");
    let began = Instant::now();
    all_of(&model, ask("hi")).await;
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn stall_hangs_at_its_point() {
    let for_ever = Duration::from_secs(1_000_000);
    let hangs = async |model: &ScriptedModel| {
        tokio::time::timeout(for_ever, model.stream(ask("hi")))
            .await
            .ok()
    };
    let model = script("replies: [{text: a b c d, stall: connect}]");
    assert!(hangs(&model).await.is_none());

    for (at, expected) in [("first_token", ""), ("mid_stream", "a b ")] {
        let model = script(&format!("replies: [{{text: a b c d, stall: {at}}}]"));
        let mut stream = hangs(&model).await.unwrap().unwrap();
        let mut text = String::new();
        while let Ok(event) = tokio::time::timeout(for_ever, stream.events.next()).await {
            text += &text_of(&[event.unwrap().unwrap()]);
        }
        assert_eq!(text, expected, "{at}");
    }

    for at in ["connect", "first_token", "mid_stream"] {
        let model = script(&format!(
            "replies: [{{text: a b c d, stall: {at}, stall_for: 5m}}]"
        ));
        let began = Instant::now();
        let (events, error) = all_of(&model, ask("hi")).await;
        assert_eq!((text_of(&events).as_str(), error), ("a b c d", None));
        assert_eq!(began.elapsed(), Duration::from_mins(5), "{at}");
    }
}

#[tokio::test]
async fn stall_in_a_call_shows_progress_but_no_call() {
    let model = script("replies: [{calls: [{tool: t, arguments: {a: 1}}], stall: mid_stream}]");
    let mut stream = model.stream(ask("hi")).await.unwrap();
    let first = stream.events.next().await.unwrap().unwrap();
    assert!(
        matches!(first, ModelEvent::ToolCallProgress { bytes: 3 }),
        "{first:?}"
    );
    assert!(stream.events.next().now_or_never().is_none());
}

#[tokio::test]
async fn disconnect_cuts_the_middle_of_the_reply() {
    let model = script("replies: [{text: a b c d, disconnect: true}]");
    let (events, error) = all_of(&model, ask("hi")).await;
    assert_eq!(text_of(&events), "a b ");
    assert_eq!(error.unwrap().kind, ModelErrorKind::Disconnected);
    let model = script("replies: [{text: a b, error: {status: 503, at: mid_stream}}]");
    let (events, error) = all_of(&model, ask("hi")).await;
    assert_eq!(text_of(&events), "a ");
    assert_eq!(error.unwrap().kind, ModelErrorKind::Unavailable);
}

#[tokio::test]
async fn errors_have_kind_message_and_wait() {
    let model = script("replies: [{error: {status: 429, retry_after: 2s, message: slow down}}]");
    for _ in 0..3 {
        let (_, error) = all_of(&model, ask("hi")).await;
        let error = error.unwrap();
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert_eq!(error.retry_after, Some(Duration::from_secs(2)));
        assert_eq!(error.message, "slow down");
    }
    let model = script("replies: [{error: {kind: provider_timeout, times: 2}, text: fine}]");
    let user = || [Message::user("hi")];
    assert_eq!(answer(&model, user()).await, "ProviderTimeout");
    assert_eq!(answer(&model, user()).await, "ProviderTimeout");
    assert_eq!(answer(&model, user()).await, "fine");
}

#[test]
fn invalid_script_error_has_line_and_column() {
    let check = |text: &str, place: &str, part: &str| {
        let message = wrong(text);
        assert!(
            message.starts_with(&format!("test.yaml:{place}")),
            "{place} of {message}"
        );
        assert!(message.contains(part), "{part:?} in {message}");
        assert!(!message.contains('\n'), "{message}");
    };
    check("replies:\n  - txet: hi\n", "2:5:", "txet");
    check(
        "replies:\n  - text: hi\n    delay: soon\n",
        "3:12:",
        "500ms",
    );
    check("replies:\n  - text: [\n", "2:11:", "");
    check(
        "replies:\n  - text: a\n    chunks: [{text: b}]\n",
        "2:5",
        "not both",
    );
    check(
        "replies:\n  - text: a\n  - error: {}\n",
        "3:5",
        "`kind` or `status`",
    );
    check(
        "replies:\n  - error: {status: 200}\n",
        "2:5:",
        "not an error",
    );
    check("replies:\n  - error: {kind: nope}\n", "2:19:", "nope");
    check(
        "replies:\n  - chunks: [{after: 1s}]\n",
        "2:5",
        "`text` or `reasoning`",
    );
    check(
        "replies:\n  - calls: [{tool: t, arguments: {}, malformed_arguments: x}]\n",
        "2:5",
        "not both",
    );
    check("replies:\n  - stall_for: 1s\n", "2:5:", "`stall`");
    check("turns:\n  - when: x\n", "2:5:", "replies");
    check("{}", "", "neither");
    check("", "", "");
    check("replies: 5", "1:10:", "");
    check("\u{0}\u{1}garbage: [", "1:1:", "");
}

#[test]
fn error_names_the_unreadable_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = ScriptedModel::from_file(&folder.path().join("none.yaml")).unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Script);
    assert!(
        error.message.contains("none.yaml") && error.message.contains("No such file"),
        "{error}"
    );
    std::fs::write(folder.path().join("bytes.yaml"), b"\xff\xfe\x00").unwrap();
    let error = ScriptedModel::from_file(&folder.path().join("bytes.yaml")).unwrap_err();
    assert!(error.message.contains("UTF-8"), "{error}");

    std::fs::write(folder.path().join("good.yaml"), "replies: [{text: x}]").unwrap();
    let model = ScriptedModel::from_file(&folder.path().join("good.yaml")).unwrap();
    assert_eq!(model.name(), "script::good.yaml");
}

#[test]
fn documented_examples_load_and_match_the_schema() {
    let schema = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../schemas/script.schema.json"
    );
    let mut schemas = boon::Schemas::new();
    let schema = boon::Compiler::new().compile(schema, &mut schemas).unwrap();
    let page = include_str!("../../../../docs/scripted-model.md");
    let examples: Vec<_> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(example, _)| example))
        .collect();
    assert!(examples.len() >= 3, "{} examples", examples.len());
    for example in examples {
        ScriptedModel::parse("example", example).unwrap();
        let value: serde_json::Value = serde_saphyr::from_str(example).unwrap();
        assert!(schemas.validate(&value, schema).is_ok(), "{example}");
    }
    for wrong in [
        "replies: [{txet: a}]",
        "replies: [{delay: soon}]",
        "replies: 5",
    ] {
        let value: serde_json::Value = serde_saphyr::from_str(wrong).unwrap();
        assert!(schemas.validate(&value, schema).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn requests_are_stored_on_request() {
    let model = ScriptedModel::new(vec![Reply::text("x")]).keeping_requests();
    all_of(&model, ask("one")).await;
    all_of(&model, ask("two")).await;
    assert_eq!(model.requests().len(), 2);
    assert_eq!(*model.requests()[1].messages[0], Message::user("two"));
}
