//! The conversation of a request in a form that all protocols can use: adjacent messages are merged, and each result
//! contains the name of its tool.

use std::collections::HashMap;
use std::sync::Arc;

use allstop_core::message::Arguments;
use allstop_core::{CallId, Image, Message, ToolCall};
use serde_json::{Value, json};

/// One entry of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum TranscriptEntry<'a> {
    /// Texts and images of consecutive user messages. They are merged because the chat templates of local models refuse
    /// two user messages in a row.
    User(Vec<UserPart<'a>>),
    /// An answer of the model. It is never empty, because providers refuse empty answers.
    Assistant {
        text: &'a str,
        calls: &'a [ToolCall],
    },
    /// Results of the calls of one answer. They are kept together because some providers require that.
    Results(Vec<TranscriptResult<'a>>),
}

/// A part of a user message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum UserPart<'a> {
    Text(&'a str),
    Image(&'a Image),
}

/// The text of the parts; `None` if a part is an image.
pub(super) fn only_text(parts: &[UserPart<'_>]) -> Option<String> {
    let texts = parts.iter().map(|part| match part {
        UserPart::Text(text) => Some(*text),
        UserPart::Image(_) => None,
    });
    Some(texts.collect::<Option<Vec<_>>>()?.join("\n\n"))
}

/// The image as a URL that contains its bytes.
pub(super) fn data_url(image: &Image) -> String {
    let media_type = image.media_type().as_str();
    format!("data:{media_type};base64,{}", image.to_base64())
}

/// The result of one call.
#[derive(Debug, PartialEq)]
pub(super) struct TranscriptResult<'a> {
    pub(super) call_id: &'a CallId,
    /// Name of the tool, which some providers require.
    pub(super) tool: &'a str,
    pub(super) text: &'a str,
    pub(super) images: &'a [Image],
    pub(super) is_error: bool,
}

/// Converts messages to entries, in order.
pub(super) fn entries(messages: &[Arc<Message>]) -> Vec<TranscriptEntry<'_>> {
    let mut entries = Vec::with_capacity(messages.len());
    let mut tools: HashMap<&CallId, &str> = HashMap::new();
    for message in messages {
        match &**message {
            Message::User { text, .. }
            | Message::Note { text }
            | Message::Summary { text }
            | Message::StopMarker { text } => {
                let images = message.images();
                // Providers refuse an empty text.
                let text = (images.is_empty() || !text.is_empty()).then_some(UserPart::Text(text));
                let parts = text.into_iter().chain(images.iter().map(UserPart::Image));
                match entries.last_mut() {
                    Some(TranscriptEntry::User(before)) => before.extend(parts),
                    _ => entries.push(TranscriptEntry::User(parts.collect())),
                }
            }
            Message::Assistant { text, tool_calls } => {
                tools.extend(tool_calls.iter().map(|call| (&call.id, &*call.name)));
                if !text.is_empty() || !tool_calls.is_empty() {
                    entries.push(TranscriptEntry::Assistant {
                        text,
                        calls: tool_calls,
                    });
                }
            }
            Message::Tool(result) => {
                let result = TranscriptResult {
                    call_id: &result.call_id,
                    tool: tools.get(&result.call_id).copied().unwrap_or_default(),
                    text: &result.content,
                    images: &result.images,
                    is_error: result.is_error,
                };
                match entries.last_mut() {
                    Some(TranscriptEntry::Results(results)) => results.push(result),
                    _ => entries.push(TranscriptEntry::Results(vec![result])),
                }
            }
        }
    }
    entries
}

/// Arguments of a call as an object. Some providers accept only objects, so malformed arguments are put into an object.
pub(super) fn arguments_object(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(object) if object.is_object() => Value::clone(object),
        Arguments::Json(other) => json!({"not_an_object": other}),
        Arguments::Malformed(text) => json!({"not_json": text}),
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::ToolResult;

    use super::*;

    #[test]
    fn adjacent_messages_are_merged_and_results_have_their_tool() {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "shell".into(),
            arguments: Arguments::from(json!({})),
        };
        let result = |id: &str| {
            Message::Tool(ToolResult {
                call_id: id.into(),
                content: "ok".into(),
                is_error: false,
                images: allstop_core::Images::default(),
            })
        };
        let assistant = |calls| Message::Assistant {
            text: "".into(),
            tool_calls: calls,
        };
        let messages = [
            Message::user("one"),
            assistant(vec![call("a"), call("b")]),
            result("a"),
            result("b"),
            assistant(vec![]),
            Message::StopMarker {
                text: "stopped".into(),
            },
            Message::user("two"),
        ]
        .map(Arc::new);
        let [
            TranscriptEntry::User(first),
            TranscriptEntry::Assistant { calls, .. },
            TranscriptEntry::Results(results),
            TranscriptEntry::User(last),
        ] = &entries(&messages)[..]
        else {
            panic!("{:?}", entries(&messages))
        };
        assert_eq!((first, calls.len()), (&vec![UserPart::Text("one")], 2));
        assert!(results.iter().all(|result| result.tool == "shell"));
        assert_eq!(last, &["stopped", "two"].map(UserPart::Text));
    }

    #[test]
    fn arguments_are_always_sent_as_an_object() {
        let shown = |arguments| arguments_object(&arguments);
        assert_eq!(shown(Arguments::from(json!({"x": 1}))), json!({"x": 1}));
        assert_eq!(
            shown(Arguments::from(json!([1]))),
            json!({"not_an_object": [1]})
        );
        assert_eq!(
            shown(Arguments::Malformed("{\"x".into())),
            json!({"not_json": "{\"x"})
        );
    }
}
