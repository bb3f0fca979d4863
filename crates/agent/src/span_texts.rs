//! Texts of the conversation for tracers that keep them, in the form of the semantic conventions for generative AI.

use std::sync::Arc;

use allstop_core::message::{Arguments, Message};
use allstop_core::{ToolCall, ToolResult};
use serde_json::{Value, json};

/// Maximum size of a text of a span, in bytes. A span contains the whole conversation, and an exporter holds many spans.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Returns the beginning of a text that is too long.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Arguments of a call as JSON.
pub(crate) fn arguments(call: &ToolCall) -> String {
    let text = match &call.arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Malformed(text) => text.to_string(),
    };
    cut(&text).to_owned()
}

/// Answer of the model, as a list with one message.
pub(crate) fn answer(text: &str, calls: &[ToolCall]) -> String {
    json!([assistant(text, calls)]).to_string()
}

/// The newest messages of a request that are not too long together. The newest message is always present.
pub(crate) fn messages(all: &[Arc<Message>]) -> String {
    let (mut bytes, mut newest) = (0, Vec::new());
    for message in all.iter().rev() {
        let message = described(message);
        bytes += message.to_string().len();
        if bytes > TEXT_BYTES_MAX && !newest.is_empty() {
            break;
        }
        newest.push(message);
    }
    newest.reverse();
    Value::Array(newest).to_string()
}

fn described(message: &Message) -> Value {
    match message {
        Message::User { text, .. }
        | Message::Note { text }
        | Message::Summary { text }
        | Message::StopMarker { text } => {
            json!({ "role": "user", "parts": [text_part(text)] })
        }
        Message::Assistant { text, tool_calls } => assistant(text, tool_calls),
        Message::Tool(result) => json!({ "role": "tool", "parts": [result_part(result)] }),
    }
}

fn assistant(text: &str, calls: &[ToolCall]) -> Value {
    let text = (!text.is_empty()).then(|| text_part(text));
    let calls = calls.iter().map(|call| {
        json!({
            "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments(call),
        })
    });
    let parts: Vec<_> = text.into_iter().chain(calls).collect();
    json!({ "role": "assistant", "parts": parts })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "content": cut(text) })
}

fn result_part(result: &ToolResult) -> Value {
    json!({
        "type": "tool_call_response", "id": result.call_id, "response": cut(&result.content),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_messages_fit_into_the_limit() {
        let long = "x".repeat(TEXT_BYTES_MAX * 2);
        let all = ["first", &long, "last"].map(|text| Arc::new(Message::user(text)));
        let text = |all: &[Arc<Message>]| -> Value {
            serde_json::from_str(&messages(all)).expect("whole JSON")
        };
        let last = json!([{ "role": "user", "parts": [{ "type": "text", "content": "last" }] }]);
        assert_eq!(text(&all), last);
        let longest = text(&all[..2]);
        let content = longest[0]["parts"][0]["content"].as_str();
        assert_eq!(content.map(str::len), Some(TEXT_BYTES_MAX));
    }
}
