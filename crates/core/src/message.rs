//! Messages of a conversation, and their parts. If a turn is stopped under the policy `keep`, the messages of its
//! completed steps stay in the conversation, followed by a marker of the stop. Under the policy `rollback`, they are
//! dropped.
//!
//! An [`Effect`] classifies a tool call by the consequence of repeating the call. A call that changes nothing, or that
//! has no further effect when repeated, may be repeated.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::ids::CallId;
use crate::image::{IMAGE_LEFT_OUT, IMAGE_TOKENS_ESTIMATED, Image, Images};
use crate::shared_text;
use crate::usage::TOKEN_BYTES_ESTIMATED;

/// Effect of repeating a tool call. The default is `irreversible`, the safe assumption.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing.
    ReadOnly,
    /// A repetition has no further effect.
    Idempotent,
    /// Can be undone.
    Compensatable,
    /// Cannot be undone, or is not declared.
    #[default]
    Irreversible,
}

impl Effect {
    /// True if a call with this effect may be repeated without a question to the user, although its outcome is unknown.
    pub fn may_repeat(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Idempotent)
    }
}

/// A complete tool call of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Id from the model, or from the adapter if the model sent none.
    pub id: CallId,
    /// The tool's name.
    #[serde(deserialize_with = "crate::shared_text::deserialize")]
    pub name: Arc<str>,
    /// The arguments, or the model's text if that text is not JSON.
    pub arguments: Arguments,
}

/// Arguments of a tool call. A call with malformed arguments gets an error result; the tool never runs with `{}`
/// instead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// Parsed arguments; shared by the history, the log and the tool.
    Json(Arc<Value>),
    /// Text of the model that is not JSON.
    Malformed(Arc<str>),
}

/// Greatest depth of nested arguments: the depth limit of the JSON parser. A reader could not parse a record with
/// deeper arguments.
const ARGUMENTS_DEPTH_MAX: usize = 128;

impl Arguments {
    /// Length of the arguments as text, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Malformed(text) => text.len(),
            Self::Json(value) => {
                let mut counter = ByteCounter(0);
                // Counting the bytes cannot fail, and a `Value` can always be serialized.
                drop(serde_json::to_writer(&mut counter, value));
                counter.0
            }
        }
    }

    /// Arguments that stand for longer ones in a shortened conversation.
    pub fn left_out() -> Self {
        Self::from(serde_json::json!({ "left_out": "these arguments are too long" }))
    }

    /// If the arguments are nested too deeply for a log, replaces them with malformed arguments. Such a call is
    /// rejected and never runs.
    pub(crate) fn bound(&mut self) {
        if let Self::Json(value) = self
            && !is_within(value, ARGUMENTS_DEPTH_MAX)
        {
            let why = format!("arguments nested deeper than {ARGUMENTS_DEPTH_MAX} levels");
            *self = Self::Malformed(why.into());
        }
    }
}

struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => {
            levels > 0 && fields.values().all(|item| is_within(item, levels - 1))
        }
        _ => true,
    }
}

impl From<Value> for Arguments {
    fn from(value: Value) -> Self {
        Self::Json(Arc::new(value))
    }
}

/// The result of a tool call; each call has exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// Id of the answered call.
    pub call_id: CallId,
    /// Text for the model.
    pub content: Arc<str>,
    /// True if the content is an error for the model.
    #[serde(default)]
    pub is_error: bool,
    /// Images for the model.
    #[serde(default, skip_serializing_if = "Images::is_empty")]
    pub images: Images,
}

/// Beginning of the result of a call that did not run, because it was denied.
pub const DENIED: &str = "the call did not run: ";
/// Beginnings of the results of calls that a stop has ended.
const STOPPED: [&str; 3] = [
    "Stopped",
    "Not run: the turn was stopped",
    "The turn was stopped",
];

/// End of a call, according to its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultEnding {
    /// The call has a result.
    Completed,
    /// The call has an error result.
    Failed,
    /// The call did not run, because it was denied.
    Denied,
    /// A stop ended the call.
    Stopped,
}

impl ToolResult {
    /// End of the call. The conversation has only the text for the model, so the text decides.
    pub fn ending(&self) -> ResultEnding {
        let starts = |with: &str| self.content.starts_with(with);
        match self.is_error {
            false => ResultEnding::Completed,
            true if starts(DENIED) => ResultEnding::Denied,
            true if STOPPED.into_iter().any(starts) => ResultEnding::Stopped,
            true => ResultEnding::Failed,
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user.
    User {
        /// The text; may be empty if there are images.
        text: Arc<str>,
        /// The images.
        #[serde(default, skip_serializing_if = "Images::is_empty")]
        images: Images,
    },
    /// From the model: text, tool calls, or both.
    Assistant {
        /// The text; empty if there are only calls.
        text: Arc<str>,
        /// The calls. The following messages hold exactly one result for each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// The result of one call.
    Tool(ToolResult),
    /// A notice of the system to the model: background work has ended.
    Note {
        /// The text.
        text: Arc<str>,
    },
    /// Summary of older messages that were dropped.
    Summary {
        /// The text.
        text: Arc<str>,
    },
    /// Marker of a stop under the policy `keep`: it informs the model of the stop.
    StopMarker {
        /// The text.
        text: Arc<str>,
    },
}

/// Length of a text with the estimated tokens of an image.
const IMAGE_BYTES_ESTIMATED: usize = (IMAGE_TOKENS_ESTIMATED * TOKEN_BYTES_ESTIMATED) as usize;

impl Message {
    /// A user's message without images.
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self::User {
            text: text.into(),
            images: Images::default(),
        }
    }

    /// The images of the message.
    pub fn images(&self) -> &[Image] {
        match self {
            Self::User { images, .. } | Self::Tool(ToolResult { images, .. }) => images,
            _ => &[],
        }
    }

    /// The message with a text in the place of each image.
    #[must_use]
    pub fn without_images(&self) -> Self {
        let mut message = self.clone();
        let (text, images) = match &mut message {
            Self::User { text, images } => (text, images),
            Self::Tool(result) => (&mut result.content, &mut result.images),
            _ => return message,
        };
        let notes = std::iter::repeat_n(IMAGE_LEFT_OUT, images.len());
        let whole = (!text.is_empty()).then_some(&**text);
        *text = whole
            .into_iter()
            .chain(notes)
            .collect::<Vec<_>>()
            .join("\n")
            .into();
        *images = Images::default();
        message
    }

    /// Length in bytes: the text, the arguments of the calls as JSON, and a fixed length for each image. Token estimates
    /// are based on this length.
    pub fn bytes(&self) -> usize {
        self.text_bytes() + self.images().len() * IMAGE_BYTES_ESTIMATED
    }

    fn text_bytes(&self) -> usize {
        match self {
            Self::User { text, .. }
            | Self::Note { text }
            | Self::Summary { text }
            | Self::StopMarker { text } => text.len(),
            Self::Tool(result) => result.content.len(),
            Self::Assistant { text, tool_calls } => {
                let calls = tool_calls.iter().map(|call| call.arguments.bytes());
                text.len() + calls.sum::<usize>()
            }
        }
    }
}

/// Written by hand for speed. Serde's derive for an internally tagged enum copies all fields before it reads them, and
/// messages are the largest part of a session.
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum MessageRole {
            User,
            Assistant,
            Tool,
            Note,
            Summary,
            StopMarker,
        }
        #[derive(Deserialize)]
        struct MessageFields {
            role: MessageRole,
            #[serde(default, deserialize_with = "shared_text::deserialize_some")]
            text: Option<Arc<str>>,
            #[serde(default)]
            tool_calls: Vec<ToolCall>,
            call_id: Option<CallId>,
            #[serde(default, deserialize_with = "shared_text::deserialize_some")]
            content: Option<Arc<str>>,
            #[serde(default)]
            is_error: bool,
            #[serde(default)]
            images: Images,
        }
        let fields = MessageFields::deserialize(d)?;
        let text = |text: Option<Arc<str>>| text.ok_or_else(|| D::Error::missing_field("text"));
        Ok(match fields.role {
            MessageRole::User => Self::User {
                text: text(fields.text)?,
                images: fields.images,
            },
            MessageRole::Assistant => Self::Assistant {
                text: text(fields.text)?,
                tool_calls: fields.tool_calls,
            },
            MessageRole::Tool => Self::Tool(ToolResult {
                call_id: fields
                    .call_id
                    .ok_or_else(|| D::Error::missing_field("call_id"))?,
                content: fields
                    .content
                    .ok_or_else(|| D::Error::missing_field("content"))?,
                is_error: fields.is_error,
                images: fields.images,
            }),
            MessageRole::Note => Self::Note {
                text: text(fields.text)?,
            },
            MessageRole::Summary => Self::Summary {
                text: text(fields.text)?,
            },
            MessageRole::StopMarker => Self::StopMarker {
                text: text(fields.text)?,
            },
        })
    }
}

/// Reason why a provider would refuse a list of messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHistory {
    /// A call has no result.
    #[error("the call {0} has no result")]
    MissingResult(CallId),
    /// A result answers an unknown call, or a call that already has a result.
    #[error("a result answers the call {0}, which is not open")]
    StrayResult(CallId),
    /// Two open calls of one message have the same id.
    #[error("the call id {0} is used twice in one message")]
    DuplicateCall(CallId),
}

/// Checks that each tool call has exactly one result, and that all results of a message come before the next message of
/// another kind.
///
/// # Errors
/// Returns the first violation.
pub fn check_history<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
) -> Result<(), InvalidHistory> {
    let mut open: Vec<&CallId> = Vec::new();
    for message in messages {
        if let Message::Tool(result) = message {
            let Some(at) = open.iter().position(|id| **id == result.call_id) else {
                return Err(InvalidHistory::StrayResult(result.call_id.clone()));
            };
            open.swap_remove(at);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(InvalidHistory::MissingResult((*id).clone()));
        }
        if let Message::Assistant { tool_calls, .. } = message {
            for call in tool_calls {
                if open.contains(&&call.id) {
                    return Err(InvalidHistory::DuplicateCall(call.id.clone()));
                }
                open.push(&call.id);
            }
        }
    }
    match open.first() {
        Some(id) => Err(InvalidHistory::MissingResult((*id).clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_length_is_the_length_of_its_json() {
        let call = |arguments| ToolCall {
            id: CallId::from("call_1"),
            name: "shell".into(),
            arguments,
        };
        let written = json!({"command": "echo \u{e4}"});
        let length = written.to_string().len();
        let message = Message::Assistant {
            text: "\u{e4}!".into(),
            tool_calls: vec![
                call(Arguments::from(written)),
                call(Arguments::Malformed("{".into())),
            ],
        };
        assert_eq!(message.bytes(), 3 + length + 1);
        assert_eq!(Message::user("four").bytes(), 4);
    }

    fn image(bytes: usize) -> Image {
        let mut data = b"\x89PNG\r\n\x1a\n".to_vec();
        data.resize(bytes, 0);
        Image::new(data).unwrap()
    }

    #[test]
    fn image_counts_as_a_fixed_number_of_tokens() {
        let message = |bytes| Message::User {
            text: "four".into(),
            images: image(bytes).into(),
        };
        assert_eq!(message(10).bytes(), 4 + 6_400);
        assert_eq!(message(1_000_000).bytes(), 4 + 6_400);
        let without = Message::user("four\n[image left out]");
        assert_eq!(message(10).without_images(), without);
    }

    #[test]
    fn messages_with_images_come_back() {
        for message in [
            Message::User {
                text: "".into(),
                images: image(9).into(),
            },
            Message::Tool(ToolResult {
                call_id: "call_1".into(),
                content: "image/png, 1 kB".into(),
                is_error: false,
                images: image(9).into(),
            }),
        ] {
            let json = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<Message>(&json).unwrap(), message);
        }
    }

    #[test]
    fn message_without_images_has_the_format_of_earlier_versions() {
        for text in [
            r#"{"role":"user","text":"go"}"#,
            r#"{"role":"tool","call_id":"call_1","content":"done","is_error":false}"#,
        ] {
            let message: Message = serde_json::from_str(text).unwrap();
            assert_eq!(message.images(), []);
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
    }
}
