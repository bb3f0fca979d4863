//! Tests of all protocols except chat completions. Complete answers, cut answers and malformed arguments have the same
//! results in each protocol.

#[path = "../../../testkit/src/openai_server/mod.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the server has more than these tests need"
)]
mod openai_server;

use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::{Message, Usage};
use futures::StreamExt;
use serde_json::json;

use super::{ClientPlan, ClientPool, ModelTarget, ProviderModel, ProviderOptions};
use crate::{Model, ModelError, ModelErrorKind, ModelEvent, ModelRequest};
use openai_server::{OpenAiServer, ServerAnswer};

/// This model of a known provider, at another server.
fn model_at(model: &str, server: &OpenAiServer) -> ProviderModel {
    let options = ProviderOptions {
        key: Some("k".into()),
        ..ProviderOptions::default()
    };
    let target = ModelTarget::new(model, options)
        .unwrap()
        .moved_to(&format!("{}/", server.url()));
    let plan = ClientPlan {
        connect_limit: None,
        is_loopback: true,
        is_https: false,
    };
    ProviderModel {
        is_text_only: false,
        target,
        clients: Arc::new(ClientPool::new(plan)),
    }
}

/// Calls this model at a server that answers with this body. Returns the events and the error of the call. If `is_cut`
/// is true, the server closes the connection after the body.
async fn hear(model: &str, body: &str, is_cut: bool) -> (Vec<ModelEvent>, Option<ModelError>) {
    let answer = ServerAnswer::stream().raw(body);
    let server = OpenAiServer::start([if is_cut {
        answer.cut()
    } else {
        answer.end_without_marker()
    }]);
    let model = model_at(model, &server);
    let mut events = Vec::new();
    let request = ModelRequest::new(vec![Arc::new(Message::user("hi"))]);
    match model.stream(request).await {
        Err(error) => (events, Some(error)),
        Ok(mut stream) => {
            while let Some(event) = stream.events.next().await {
                match event {
                    Ok(event) => events.push(event),
                    Err(error) => return (events, Some(error)),
                }
            }
            (events, None)
        }
    }
}

fn arguments(events: &[ModelEvent]) -> Vec<&Arguments> {
    events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCall(call) => Some(&call.arguments),
            _ => None,
        })
        .collect()
}

fn anthropic(partial_json: &str, end: &str) -> String {
    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "shell", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": partial_json}}),
    ];
    let named = |event: &serde_json::Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    events
        .iter()
        .map(named)
        .chain([end.to_owned()])
        .collect::<Vec<_>>()
        .concat()
}

const ANTHROPIC_END: &str = r#"event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}

event: message_stop
data: {"type":"message_stop"}

"#;

#[tokio::test]
async fn anthropic_calls_are_complete_or_text_and_cuts_are_errors() {
    let model = "claude-sonnet-4-6";
    let (events, error) = hear(
        model,
        &anthropic(r#"{"command":"ls"}"#, ANTHROPIC_END),
        false,
    )
    .await;
    assert_eq!(error, None);
    assert_eq!(
        arguments(&events),
        [&Arguments::from(json!({"command": "ls"}))]
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, ModelEvent::Usage(_))),
        "{events:?}"
    );

    let (events, _) = hear(model, &anthropic(r#"{"comm"#, ANTHROPIC_END), false).await;
    assert_eq!(
        arguments(&events),
        [&Arguments::Malformed(r#"{"comm"#.into())]
    );

    for is_cut in [true, false] {
        let (events, error) = hear(model, &anthropic(r#"{"command":"ls"}"#, ""), is_cut).await;
        assert!(arguments(&events).is_empty());
        assert_eq!(error.unwrap().kind, ModelErrorKind::Disconnected);
    }

    let error =
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let (_, error) = hear(
        model,
        &anthropic("", &format!("event: error\n{error}\n\n")),
        false,
    )
    .await;
    let error = error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("Overloaded"), "{error}");
}

#[tokio::test]
async fn anthropic_usage_counts_tokens_read_from_and_written_to_the_cache() {
    let body = anthropic("{}", ANTHROPIC_END).replace(
        r#""input_tokens":9"#,
        r#""input_tokens":9,"cache_creation_input_tokens":100,"cache_read_input_tokens":1000"#,
    );
    let (events, error) = hear("claude-sonnet-4-6", &body, false).await;
    assert_eq!(error, None);
    let usage = events.iter().rev().find_map(|event| match event {
        ModelEvent::Usage(usage) => Some(*usage),
        _ => None,
    });
    let expected = Usage {
        input_tokens: 1_109,
        cached_input_tokens: 1_000,
        cache_write_input_tokens: 100,
        output_tokens: 7,
        estimated: false,
    };
    assert_eq!(usage, Some(expected));
}

#[tokio::test]
async fn gemini_answer_needs_a_finish_reason() {
    let model = "gemini-2.5-flash";
    let body = |part: &str, end: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{part}]}}{end}}}],\
             \"usageMetadata\":{{\"promptTokenCount\":3,\"candidatesTokenCount\":1}}}}\n\n"
        )
    };
    let text = r#"{"text":"hi"}"#;
    let (events, error) = hear(model, &body(text, r#","finishReason":"STOP""#), false).await;
    assert_eq!(error, None);
    assert!(
        matches!(&events[..], [ModelEvent::Text(text), ModelEvent::Usage(_), ModelEvent::End(_)] if &**text == "hi"),
        "{events:?}"
    );
    for is_cut in [true, false] {
        let (events, error) = hear(model, &body(text, ""), is_cut).await;
        assert_eq!(events, [ModelEvent::Text("hi".into())]);
        assert_eq!(error.unwrap().kind, ModelErrorKind::Disconnected);
    }

    let call = r#"{"functionCall":{"name":"shell","args":{"command":"ls"}}}"#;
    let (events, error) = hear(model, &body(call, r#","finishReason":"STOP""#), false).await;
    assert_eq!(error, None);
    assert_eq!(
        arguments(&events),
        [&Arguments::from(json!({"command": "ls"}))]
    );

    let unreadable = body(text, r#","finishReason":"MALFORMED_FUNCTION_CALL""#);
    let (events, error) = hear(model, &unreadable, false).await;
    assert!(arguments(&events).is_empty());
    assert_eq!(error.unwrap().kind, ModelErrorKind::Protocol);
}

#[tokio::test]
async fn responses_without_completion_are_disconnects() {
    let model = "gpt-5-mini";
    let delta = r#"data: {"type":"response.output_text.delta","delta":"hi"}"#;
    let item = r#"data: {"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"shell"}}"#;
    let call = r#"data: {"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"comm"}"#;
    let done = r#"data: {"type":"response.completed","response":{"id":"r","status":"completed","model":"m","output":[],"usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}}"#;
    let whole = format!("{delta}\n\n{item}\n\n{call}\n\n{done}\n\n");
    let (events, error) = hear(model, &whole, false).await;
    assert_eq!(error, None, "{events:?}");
    assert_eq!(
        arguments(&events),
        [&Arguments::Malformed(r#"{"comm"#.into())]
    );
    for is_cut in [true, false] {
        let (events, error) =
            hear(model, &format!("{delta}\n\n{item}\n\n{call}\n\n"), is_cut).await;
        assert!(arguments(&events).is_empty());
        assert_eq!(error.unwrap().kind, ModelErrorKind::Disconnected);
    }
}

/// OpenAI's reasoning models refuse `max_tokens`.
#[tokio::test]
async fn limit_of_an_answer_has_the_name_that_the_provider_accepts() {
    for (model, sent, absent) in [
        ("o4-mini", "max_completion_tokens", "max_tokens"),
        ("gpt-4o-mini", "max_completion_tokens", "max_tokens"),
        ("groq::x", "max_tokens", "max_completion_tokens"),
    ] {
        let server = OpenAiServer::start([ServerAnswer::text("x")]);
        let request = ModelRequest {
            max_output_tokens: Some(77),
            ..ModelRequest::new(vec![Arc::new(Message::user("hi"))])
        };
        let stream = model_at(model, &server).stream(request).await.unwrap();
        drop(stream);
        let body = &server.requests()[0].body;
        assert_eq!((&body[sent], &body[absent]), (&json!(77), &json!(null)));
    }
}
