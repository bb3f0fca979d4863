//! Events of a provider's answer.

use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::{Message, ToolCall, ToolResult, Usage};
use allstop_model::{
    FinishReason, Model, ModelErrorKind, ModelEvent, ModelRequest, ProviderModel, ProviderOptions,
    RequestSettings,
};
use serde_json::json;

use crate::openai_server::{OpenAiServer, ServerAnswer};
use crate::support::{all_of, ask, model_at, shell_tool, text_of};

fn calls_of(events: &[ModelEvent]) -> Vec<&ToolCall> {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCall(call) => Some(call),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn text_arrives_in_pieces_with_usage_and_end() {
    let server = OpenAiServer::start([ServerAnswer::text("one two three").usage(12, 3)]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(error, None);
    assert_eq!(
        events,
        [
            ModelEvent::Text("one ".into()),
            ModelEvent::Text("two ".into()),
            ModelEvent::Text("three".into()),
            ModelEvent::Usage(Usage {
                input_tokens: 12,
                cached_input_tokens: 0,
                cache_write_input_tokens: 0,
                output_tokens: 3,
                estimated: false
            }),
            ModelEvent::End(FinishReason::Done),
        ]
    );
}

#[tokio::test]
async fn refused_setting_is_an_error_before_a_request() {
    let server = OpenAiServer::start([ServerAnswer::text("one")]);
    let request = ask("hi").settings(Arc::new(
        RequestSettings::default().provider_option("stream", false),
    ));
    let (_, error) = all_of(&model_at(&server.url()), request).await;
    let error = error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::Invalid);
    assert!(error.message.contains("`stream`"), "{error}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn missing_usage_is_not_invented() {
    let server = OpenAiServer::start([ServerAnswer::text("one").without_usage()]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(error, None);
    assert_eq!(
        events,
        [
            ModelEvent::Text("one".into()),
            ModelEvent::End(FinishReason::Done)
        ]
    );
}

#[tokio::test]
async fn base_url_gets_the_literal_name_and_a_request_for_usage() {
    let server = OpenAiServer::start([ServerAnswer::text("x")]);
    let model = model_at(&server.url());
    let request = ask("hi")
        .system(Arc::from("be brief"))
        .tools(Arc::new([shell_tool()]))
        .max_output_tokens(77);
    all_of(&model, request).await;
    let received = &server.requests()[0];
    assert_eq!(received.line, "POST /v1/chat/completions");
    assert_eq!(received.body["model"], "some::model-high");
    assert_eq!(received.body["reasoning_effort"], json!(null));
    assert_eq!(received.body["stream"], true);
    assert_eq!(
        received.body["stream_options"],
        json!({"include_usage": true})
    );
    assert_eq!(received.body["max_tokens"], 77);
    assert_eq!(received.body["tools"][0]["function"]["name"], "shell");
    assert_eq!(
        received.messages()[0],
        json!({"role": "system", "content": "be brief"})
    );
    assert_eq!(
        received.messages()[1],
        json!({"role": "user", "content": "hi"})
    );
    assert_eq!(received.header("authorization"), None);
    assert_eq!(model.name(), "some::model-high");
}

#[tokio::test]
async fn given_key_is_sent_to_a_base_url() {
    let server = OpenAiServer::start([ServerAnswer::text("x")]);
    let options = ProviderOptions::default()
        .base_url(format!("{}/v1", server.url()))
        .key("sk-given".to_owned());
    all_of(&ProviderModel::new("m", options).unwrap(), ask("hi")).await;
    assert_eq!(
        server.requests()[0].header("authorization"),
        Some("Bearer sk-given")
    );
    assert_eq!(server.requests()[0].line, "POST /v1/chat/completions");
}

#[tokio::test]
async fn tool_calls_arrive_complete_and_in_order() {
    let server = OpenAiServer::start([ServerAnswer::text("Look.")
        .tool_call("a", "shell", r#"{"command":"ls"}"#)
        .tool_call("b", "shell", r#"{"command":"pwd"}"#)]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(error, None);
    let call = |id: &str, command: &str| ToolCall {
        id: id.into(),
        name: "shell".into(),
        arguments: Arguments::from(json!({"command": command})),
    };
    assert_eq!(calls_of(&events), [&call("a", "ls"), &call("b", "pwd")]);
    assert_eq!(text_of(&events), "Look.");
    assert_eq!(events.last(), Some(&ModelEvent::End(FinishReason::Done)));
}

#[tokio::test]
async fn malformed_arguments_stay_text() {
    for arguments in [r#"{"command": "ls"#, "", "not json", "{}{}"] {
        let server =
            OpenAiServer::start([ServerAnswer::stream().tool_call("a", "shell", arguments)]);
        let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
        assert_eq!(error, None);
        let [call] = calls_of(&events)[..] else {
            panic!("one call, not {events:?}")
        };
        assert_eq!(call.arguments, Arguments::Malformed(arguments.into()));
    }
}

#[tokio::test]
async fn call_cut_by_the_length_limit_is_malformed() {
    for (finish, reason) in [
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter),
    ] {
        let server = OpenAiServer::start([ServerAnswer::text("a")
            .tool_call("a", "shell", r#"{"command":"ls"}"#)
            .half_tool_call("b", "shell", r#"{"comma"#)
            .finish(finish)]);
        let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
        assert_eq!(error, None);
        let [whole, half] = calls_of(&events)[..] else {
            panic!("two calls, not {events:?}")
        };
        let command = Arguments::from(json!({"command": "ls"}));
        assert_eq!((whole.id.as_str(), &whole.arguments), ("a", &command));
        let text = Arguments::Malformed(r#"{"comma"#.into());
        assert_eq!((half.id.as_str(), &half.arguments), ("b", &text));
        assert_eq!(events.last(), Some(&ModelEvent::End(reason)));
    }
}

/// Total number of argument bytes that the progress events of an answer report.
fn progress_of(events: &[ModelEvent]) -> usize {
    let bytes = events.iter().map(|event| match event {
        ModelEvent::ToolCallProgress { bytes } => *bytes,
        _ => 0,
    });
    bytes.sum()
}

#[tokio::test]
async fn each_byte_of_a_streamed_call_is_counted_once() {
    let pieces = |answer: ServerAnswer| {
        (0..2_500).fold(answer, |answer, _| answer.more_arguments("12345678"))
    };
    let answer = ServerAnswer::stream().half_tool_call("a", "write", r#"{"text":""#);
    let first = pieces(answer).more_arguments(r#""}"#);
    // Each call has the same id, because some servers do not number calls.
    let second = first.half_tool_call("a", "write", r#"{"text":"x"#);
    let server = OpenAiServer::start([second.more_arguments(r#"y"}"#)]);
    let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
    assert_eq!(error, None);
    let calls = calls_of(&events);
    assert_eq!(calls.len(), 2);
    let written: usize = calls.iter().map(|call| call.arguments.bytes()).sum();
    assert_eq!(progress_of(&events), written);
}

#[tokio::test]
async fn partial_call_is_never_emitted() {
    for answer in [
        ServerAnswer::text("x")
            .half_tool_call("a", "shell", r#"{"command":"ls"}"#)
            .cut(),
        ServerAnswer::text("x")
            .half_tool_call("a", "shell", r#"{"command":"ls"}"#)
            .end_without_marker(),
    ] {
        let server = OpenAiServer::start([answer]);
        let (events, error) = all_of(&model_at(&server.url()), ask("hi")).await;
        assert!(calls_of(&events).is_empty(), "{events:?}");
        assert_eq!(error.unwrap().kind, ModelErrorKind::Disconnected);
    }
}

#[tokio::test]
async fn repeated_ids_are_made_unique() {
    let server = OpenAiServer::start([ServerAnswer::stream()
        .tool_call("call_0", "shell", "{}")
        .delta(
            &json!({"tool_calls": [{"index": 1, "function": {"name": "shell", "arguments": "{}"}}]}),
        )
        .tool_call("", "shell", "{}")]);
    let call = ToolCall {
        id: "call_0".into(),
        name: "shell".into(),
        arguments: Arguments::from(json!({})),
    };
    let request = ModelRequest::new(
        [
            Message::user("hi"),
            Message::Assistant {
                text: "".into(),
                tool_calls: vec![call],
            },
            Message::Tool(ToolResult {
                call_id: "call_0".into(),
                content: "done".into(),
                is_error: false,
                images: allstop_core::Images::default(),
            }),
        ]
        .map(Arc::new)
        .to_vec(),
    );
    let (events, error) = all_of(&model_at(&server.url()), request).await;
    assert_eq!(error, None);
    let mut ids: Vec<_> = calls_of(&events)
        .iter()
        .map(|call| call.id.clone())
        .collect();
    ids.push("call_0".into());
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "{events:?}");
}

#[tokio::test]
async fn connection_is_reused_after_a_complete_answer() {
    let server = OpenAiServer::start([ServerAnswer::text("x")]);
    let model = model_at(&server.url());
    for _ in 0..50 {
        let (_, error) = all_of(&model, ask("hi")).await;
        assert_eq!(error, None);
    }
    let seen = server.seen();
    assert_eq!(seen.requests.len(), 50);
    // Some calls open a second connection, because a call may start before the last byte of the previous answer has
    // been read.
    assert!(seen.connections.len() < 10, "{}", seen.connections.len());
}

#[tokio::test]
async fn prompt_of_ten_megabytes_is_accepted() {
    let server = OpenAiServer::start([ServerAnswer::text("x")]);
    let prompt = "word ".repeat(2 * 1024 * 1024);
    let (_, error) = all_of(&model_at(&server.url()), ask(&prompt)).await;
    assert_eq!(error, None);
    assert_eq!(
        server.requests()[0].messages()[0]["content"]
            .as_str()
            .unwrap()
            .len(),
        prompt.len()
    );
}
