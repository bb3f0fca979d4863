//! Property test with arbitrary events, even impossible events. The answer is either an error, or it has unique calls
//! and one end. No event causes a panic.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::answer::AnswerParts;
use super::super::call_ids::CallIds;
use super::{AnswerProgress, Protocol};
use crate::AnswerLimits;
use crate::{CALLS_MAX, ModelEvent};

const PROTOCOLS: [Protocol; 4] = [
    Protocol::ChatCompletions,
    Protocol::Responses,
    Protocol::Messages,
    Protocol::GenerateContent,
];

/// All keys and words that a protocol reads. The test uses them so that most events are meaningful.
const KEYS: &[&str] = &[
    "args",
    "arguments",
    "cache_read_input_tokens",
    "call_id",
    "candidates",
    "candidatesTokenCount",
    "choices",
    "completion_tokens",
    "content",
    "content_block",
    "delta",
    "error",
    "finishReason",
    "finish_reason",
    "function",
    "functionCall",
    "id",
    "incomplete_details",
    "index",
    "input_tokens",
    "item",
    "message",
    "name",
    "output_index",
    "output_tokens",
    "partial_json",
    "parts",
    "promptFeedback",
    "promptTokenCount",
    "prompt_tokens",
    "reason",
    "reasoning_content",
    "response",
    "stop_reason",
    "text",
    "thinking",
    "thought",
    "thoughtsTokenCount",
    "tool_calls",
    "type",
    "usage",
    "usageMetadata",
];
const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "{}",
    "{\"a\":",
    "1}",
    "\"text\"",
    "length",
    "stop",
    "tool_calls",
    "tool_use",
    "max_tokens",
    "MAX_TOKENS",
    "STOP",
    "MALFORMED_FUNCTION_CALL",
    "function_call",
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "response.output_item.added",
    "response.output_text.delta",
    "response.function_call_arguments.delta",
    "response.completed",
    "response.incomplete",
    "response.failed",
];

const COUNTS: &[&str] = &[
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "candidatesTokenCount",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "promptTokenCount",
    "prompt_tokens",
    "thoughtsTokenCount",
];

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..3_u64, Just(u64::MAX)]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any_count().prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let object = prop::collection::vec((prop::sample::select(KEYS), inner.clone()), 0..6);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            3 => object.prop_map(|fields| {
                let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

/// An event similar to the events of a protocol.
fn event() -> impl Strategy<Value = Value> {
    (any_value(), any_count(), 0..7_usize).prop_map(|(value, count, shape)| match shape {
        0 => json!({"choices": [{"delta": {"tool_calls": [value]}}]}),
        1 => json!({"choices": [{"delta": value, "finish_reason": "tool_calls"}], "usage": {}}),
        2 => json!({"type": "content_block_start", "content_block": value}),
        3 => json!({"type": "response.output_item.added", "item": value}),
        4 => json!({"candidates": [{"content": {"parts": [value]}}]}),
        5 => {
            let counts: Map<_, _> = COUNTS.iter().map(|key| ((*key).to_owned(), count.into())).collect();
            json!({
                "type": "message_start", "message": {"usage": counts}, "usage": counts, "usageMetadata": counts,
            })
        }
        _ => value,
    })
}

proptest! {
    #[test]
    fn any_events_end_once_or_fail(events in prop::collection::vec(event(), 0..12)) {
        for protocol in PROTOCOLS {
            let mut answer = AnswerParts::new(CallIds::avoiding(&[]), AnswerLimits::ANSWER_BYTES_DEFAULT);
            let taken = events.iter().try_for_each(|event| {
                match protocol.take(&event.to_string(), &mut answer) {
                    Ok(AnswerProgress::More) => Ok(()),
                    ended => Err(ended.map(drop)),
                }
            });
            if matches!(taken, Err(Err(_))) || answer.end().is_err() {
                continue;
            }
            let events: Vec<_> = std::iter::from_fn(|| answer.next_event()).collect();
            let ends = events.iter().filter(|event| matches!(event, ModelEvent::End(_)));
            prop_assert_eq!(ends.count(), 1);
            prop_assert!(matches!(events.last(), Some(ModelEvent::End(_))));
            let ids: Vec<_> = events.iter().filter_map(|event| match event {
                ModelEvent::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            }).collect();
            prop_assert!(ids.len() <= CALLS_MAX);
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }
    }
}
