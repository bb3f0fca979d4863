//! When a recording is played, it gives the same answers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allstop_model::scripted::Pause;
use allstop_model::{
    FinishReason, Model, ModelError, ModelErrorKind, ModelEvent, RecordingModel, Reply,
    ScriptedModel,
};
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::time::Instant;

use crate::openai_server::{OpenAiServer, ServerAnswer};
use crate::support::{all_of, ask, model_at, text_of};

fn recording(folder: &Path, replies: Vec<Reply>) -> RecordingModel {
    let model = ScriptedModel::in_order_of_calls(replies);
    RecordingModel::new(Arc::new(model), folder.join("run.yaml"))
}

fn played(model: &RecordingModel) -> ScriptedModel {
    model.save().unwrap();
    ScriptedModel::from_file(model.path()).unwrap()
}

/// Text and calls of an answer. They do not depend on how the answer was divided into pieces.
async fn answer(model: &dyn Model) -> (String, Vec<ModelEvent>, Option<ModelError>) {
    let (mut events, error) = all_of(model, ask("hi")).await;
    let text = text_of(&events);
    events.retain(|event| !matches!(event, ModelEvent::Text(_)));
    (text, events, error)
}

#[tokio::test]
async fn recording_plays_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let refused = ModelError::new(ModelErrorKind::RateLimited, "slow down")
        .with_retry_after(Some(Duration::from_secs(3)));
    let replies = vec![
        Reply::error(refused),
        Reply::default()
            .and_reasoning("hmm")
            .and_text("Let me ")
            .and_text("look.")
            .call("shell", json!({"command": "ls", "deep": [1, {"a": null}]}))
            .malformed_call("shell", "{\"comm")
            .usage(7, 8),
        Reply::text("half").disconnect(),
        Reply::text("long").finish(FinishReason::Length),
    ];
    let calls = replies.len();
    let expected = ScriptedModel::in_order_of_calls(replies.clone());
    let model = recording(folder.path(), replies);
    for _ in 0..calls {
        let heard = answer(&model).await;
        assert_eq!(heard, answer(&expected).await, "recording changes nothing");
    }
    // Plays the recording three times. Each time the script is loaded, it starts with the first reply.
    for _ in 0..3 {
        let expected = ScriptedModel::from_file(model.path()).ok();
        assert_eq!(expected.is_some(), model.path().exists());
        let script = played(&model);
        for number in 0..calls {
            let heard = answer(&script).await;
            let what = answer_of(number);
            assert!(what(&heard), "{number}: {heard:?}");
        }
    }
}

type Heard = (String, Vec<ModelEvent>, Option<ModelError>);

fn answer_of(number: usize) -> fn(&Heard) -> bool {
    [
        |(text, _, error): &Heard| {
            text.is_empty()
                && error.as_ref().is_some_and(|error| {
                    error.kind == ModelErrorKind::RateLimited
                        && error.message == "slow down"
                        && error.retry_after == Some(Duration::from_secs(3))
                })
        },
        |(text, events, error): &Heard| {
            text == "Let me look." && events.len() == 5 && error.is_none()
        },
        |(text, events, error): &Heard| {
            text == "half"
                && events.is_empty()
                && error
                    .as_ref()
                    .is_some_and(|error| error.kind == ModelErrorKind::Disconnected)
        },
        |(text, events, error): &Heard| {
            text == "long" && *events == [ModelEvent::End(FinishReason::Length)] && error.is_none()
        },
    ][number]
}

#[tokio::test(start_paused = true)]
async fn recording_keeps_the_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = |n| Pause::For(Duration::from_secs(n));
    let reply = Reply::default()
        .pause(seconds(2))
        .and_text("one ")
        .and_text("two ")
        .pause(seconds(5))
        .and_text("three")
        .pause(seconds(60))
        .call("t", json!({}));
    let model = recording(folder.path(), vec![reply]);
    all_of(&model, ask("hi")).await;
    let script = played(&model);
    let began = Instant::now();
    let (events, error) = all_of(&script, ask("hi")).await;
    assert_eq!((text_of(&events).as_str(), error), ("one two three", None));
    assert_eq!(began.elapsed(), Duration::from_secs(67));
    let text = std::fs::read_to_string(model.path()).unwrap();
    assert!(
        text.contains("after: 5s") && text.contains("after: 1m"),
        "{text}"
    );
}

#[tokio::test]
async fn dropped_call_hangs_at_the_same_point() {
    let folder = tempfile::tempdir().unwrap();
    let replies = vec![
        Reply::text("x").stalling_at_connect(Pause::Forever),
        Reply::default().pause(Pause::Forever),
        Reply::text("half of").pause(Pause::Forever),
    ];
    let model = recording(folder.path(), replies);
    let drop_each = async |model: &dyn Model| {
        assert!(
            model.stream(ask("hi")).now_or_never().is_none(),
            "it hangs at connect"
        );
        let mut stream = model.stream(ask("hi")).await.unwrap();
        assert!(
            stream.events.next().now_or_never().is_none(),
            "it hangs before the first token"
        );
        let mut stream = model.stream(ask("hi")).await.unwrap();
        let text = stream.events.next().await.unwrap().unwrap();
        assert_eq!(text, ModelEvent::Text("half of".into()));
        assert!(
            stream.events.next().now_or_never().is_none(),
            "it hangs in the middle"
        );
    };
    drop_each(&model).await;
    drop_each(&played(&model)).await;
}

#[tokio::test]
async fn any_text_survives_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let texts = [
        "two\nlines\n",
        "  spaces at both ends  ",
        "\ttabs\tand \u{0} \u{1b}[31m control \u{7f}",
        "yes",
        "null",
        "12",
        "1e5",
        "- a: [b, {c: d}] # e",
        "'single' \"double\" \\ back",
        "|",
        ">-\n  folded",
        "---\n...\n",
        "ends: with colon:",
        "*alias &anchor !tag %dir @at `tick`",
        "Zürich 東京 👩‍👩‍👧 \u{2028}\u{feff}\u{85}",
        "\r\n\r",
        " ",
        "\n",
        "\n\n  x\n",
    ];
    let replies = texts
        .iter()
        .map(|text| Reply::text(*text).malformed_call(*text, *text))
        .collect();
    let model = recording(folder.path(), replies);
    for _ in texts {
        all_of(&model, ask("hi")).await;
    }
    let script = played(&model);
    for text in texts {
        let (events, error) = all_of(&script, ask("hi")).await;
        assert_eq!((text_of(&events).as_str(), error), (text, None));
        let ModelEvent::ToolCall(call) = &events[1] else {
            panic!("a call, not {events:?}")
        };
        assert_eq!(&*call.name, text);
        assert_eq!(
            call.arguments,
            allstop_core::message::Arguments::Malformed(text.into())
        );
    }
}

#[tokio::test]
async fn provider_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let server = OpenAiServer::start([ServerAnswer::text("one two three")
        .every(Duration::from_millis(5))
        .tool_call("a", "shell", r#"{"command":"ls"}"#)]);
    let model = RecordingModel::new(
        Arc::new(model_at(&server.url())),
        folder.path().join("run.yaml"),
    );
    let (heard, error) = all_of(&model, ask("hi")).await;
    assert_eq!(error, None);
    let (again, error) = all_of(&played(&model), ask("hi")).await;
    assert_eq!(error, None);
    assert_eq!(text_of(&again), text_of(&heard));
    let solid = |events: Vec<ModelEvent>| -> Vec<_> {
        let passing = |event: &ModelEvent| {
            matches!(
                event,
                ModelEvent::Text(_) | ModelEvent::ToolCallProgress { .. }
            )
        };
        events.into_iter().filter(|event| !passing(event)).collect()
    };
    assert_eq!(solid(again), solid(heard));
    let text = std::fs::read_to_string(model.path()).unwrap();
    assert!(
        text.starts_with("# Recorded from some::model-high.\n"),
        "{text}"
    );
}

#[tokio::test]
async fn failed_save_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = recording(&folder.path().join("missing"), vec![Reply::text("x")]);
    all_of(&model, ask("hi")).await;
    assert_eq!(
        model.save().unwrap_err().kind(),
        std::io::ErrorKind::NotFound
    );

    // A folder already exists at the path, so the rename fails. No temporary file may remain.
    let taken = folder.path().join("run.yaml");
    std::fs::create_dir(&taken).unwrap();
    let model = recording(folder.path(), vec![Reply::text("x")]);
    all_of(&model, ask("hi")).await;
    assert!(model.save().is_err());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
