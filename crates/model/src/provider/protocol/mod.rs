//! The protocols of providers. A protocol defines the request as JSON, and the events of the answer.

mod answer_schema;
#[cfg(test)]
mod any_event_tests;
mod chat_completions;
mod decoding;
mod generate_content;
mod messages;
mod responses;
mod settings;
#[cfg(test)]
mod settings_tests;

use reqwest::RequestBuilder;
use reqwest::header::HeaderValue;
use serde_json::Value;
use url::Url;

use super::answer::AnswerParts;
use super::bounded_json::parse;
use crate::ModelRequest;
pub(super) use decoding::{AnswerProgress, EventDecodeError};
pub(super) use settings::SettingError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `OpenAI`'s chat completions API, which most providers and servers use.
    ChatCompletions,
    /// Chat completions at `OpenAI` itself.
    OpenAiChat,
    /// `OpenAI`'s responses API.
    Responses,
    /// Anthropic's messages API.
    Messages,
    /// Google's `generateContent`.
    GenerateContent,
}

impl Protocol {
    /// URL of requests. `base` is the base URL of the provider and ends with a slash.
    pub(super) fn url(self, base: &str, model: &str) -> Result<Url, url::ParseError> {
        let path = match self {
            Self::ChatCompletions | Self::OpenAiChat => "chat/completions".to_owned(),
            Self::Responses => "responses".to_owned(),
            Self::Messages => "messages".to_owned(),
            Self::GenerateContent => format!("models/{model}:streamGenerateContent?alt=sse"),
        };
        Url::parse(base)?.join(&path)
    }

    /// Adds the key to a request. The header is marked as sensitive, so that it is never printed.
    pub(super) fn authorize(self, request: RequestBuilder, key: Option<&str>) -> RequestBuilder {
        let request = match self {
            Self::Messages => request.header("anthropic-version", messages::VERSION),
            _ => request,
        };
        let Some(key) = key else { return request };
        let (name, value) = match self {
            Self::ChatCompletions | Self::OpenAiChat | Self::Responses => {
                ("authorization", format!("Bearer {key}"))
            }
            Self::Messages => ("x-api-key", key.to_owned()),
            Self::GenerateContent => ("x-goog-api-key", key.to_owned()),
        };
        match HeaderValue::from_str(&value) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(name, value)
            }
            // An invalid header makes the request invalid, so the request fails when it is sent.
            Err(_) => request.header(name, value),
        }
    }

    /// The request as JSON. Fails if the protocol lacks a setting of the request.
    pub(super) fn body(self, model: &str, request: &ModelRequest) -> Result<Value, SettingError> {
        settings::check(request)?;
        let mut body = match self {
            Self::ChatCompletions => {
                chat_completions::body(model, request, chat_completions::LIMIT)
            }
            Self::OpenAiChat => {
                chat_completions::body(model, request, chat_completions::LIMIT_OF_OPENAI)
            }
            Self::Responses => responses::body(model, request)?,
            Self::Messages => messages::body(model, request)?,
            Self::GenerateContent => generate_content::body(model, request)?,
        };
        settings::merge_options(&mut body, &request.settings.provider_options)?;
        Ok(body)
    }

    /// Adds the data of one event to the answer.
    pub(super) fn take(
        self,
        data: &str,
        answer: &mut AnswerParts,
    ) -> Result<AnswerProgress, EventDecodeError> {
        let is_chat = matches!(self, Self::ChatCompletions | Self::OpenAiChat);
        if is_chat && data == chat_completions::END_MARKER {
            return Ok(AnswerProgress::Complete);
        }
        let event = parse(data).map_err(EventDecodeError::Json)?;
        match self {
            Self::ChatCompletions | Self::OpenAiChat => chat_completions::take(&event, answer),
            Self::Responses => responses::take(&event, answer),
            Self::Messages => messages::take(&event, answer),
            Self::GenerateContent => generate_content::take(event, answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use allstop_core::message::Arguments;
    use allstop_core::{Image, Images, Message, ToolCall, ToolResult};
    use serde_json::json;

    use super::*;
    use crate::ToolDeclaration;

    /// A request with one call and its result, between two user messages.
    fn request() -> ModelRequest {
        let call = ToolCall {
            id: "a".into(),
            name: "shell".into(),
            arguments: Arguments::from(json!({"command": "ls"})),
        };
        let messages = [
            Message::user("one"),
            Message::Assistant {
                text: "Look.".into(),
                tool_calls: vec![call],
            },
            Message::Tool(ToolResult {
                call_id: "a".into(),
                content: "no".into(),
                is_error: true,
                images: Images::default(),
            }),
            Message::user("two"),
        ];
        ModelRequest {
            system: Some("be brief".into()),
            tools: Arc::new([ToolDeclaration {
                name: "shell".into(),
                description: "Runs.".into(),
                input_schema: Arc::new(json!({"type": "object"})),
            }]),
            max_output_tokens: Some(7),
            ..ModelRequest::new(messages.map(Arc::new).to_vec())
        }
    }

    #[test]
    fn each_protocol_has_its_own_request_format() {
        let schema = json!({"type": "object"});
        assert_eq!(
            Protocol::Messages.body("m", &request()).unwrap(),
            json!({
                "model": "m", "max_tokens": 7, "stream": true,
                "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
                "tools": [{"name": "shell", "description": "Runs.", "input_schema": schema}],
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "one"}]},
                    {"role": "assistant", "content": [
                        {"type": "text", "text": "Look."},
                        {"type": "tool_use", "id": "a", "name": "shell", "input": {"command": "ls"}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true},
                    ]},
                    {"role": "user", "content": [
                        {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}},
                    ]},
                ],
            })
        );
        assert_eq!(
            Protocol::Responses.body("m", &request()).unwrap(),
            json!({
                "model": "m", "max_output_tokens": 7, "stream": true, "store": false,
                "instructions": "be brief",
                "tools": [{"type": "function", "name": "shell", "description": "Runs.",
                    "parameters": schema, "strict": false}],
                "input": [
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "Look."},
                    {"type": "function_call", "call_id": "a", "name": "shell",
                        "arguments": "{\"command\":\"ls\"}"},
                    {"type": "function_call_output", "call_id": "a", "output": "no"},
                    {"role": "user", "content": "two"},
                ],
            })
        );
        assert_eq!(
            Protocol::GenerateContent.body("m", &request()).unwrap(),
            json!({
                "generationConfig": {"maxOutputTokens": 7},
                "systemInstruction": {"parts": [{"text": "be brief"}]},
                "tools": [{"functionDeclarations": [{"name": "shell", "description": "Runs.",
                    "parametersJsonSchema": schema}]}],
                "contents": [
                    {"role": "user", "parts": [{"text": "one"}]},
                    {"role": "model", "parts": [
                        {"text": "Look."},
                        {"functionCall": {"name": "shell", "args": {"command": "ls"}}},
                    ]},
                    {"role": "user", "parts": [
                        {"functionResponse": {"name": "shell", "response": {"error": "no"}}},
                    ]},
                    {"role": "user", "parts": [{"text": "two"}]},
                ],
            })
        );
    }

    /// A message with an image and no text, a call whose result has an image, and the next message.
    fn request_with_images() -> ModelRequest {
        let image = || Images::from(Image::new(*b"\x89PNG\r\n\x1a\n").unwrap());
        let messages = [
            Message::User {
                text: "".into(),
                images: image(),
            },
            Message::Assistant {
                text: "".into(),
                tool_calls: vec![ToolCall {
                    id: "a".into(),
                    name: "read".into(),
                    arguments: Arguments::from(json!({})),
                }],
            },
            Message::Tool(ToolResult {
                call_id: "a".into(),
                content: "image/png, 1 kB".into(),
                is_error: false,
                images: image(),
            }),
            Message::user("two"),
        ];
        ModelRequest::new(messages.map(Arc::new).to_vec())
    }

    #[test]
    fn each_protocol_has_its_own_format_of_images() {
        let data = "iVBORw0KGgo=";
        let url = format!("data:image/png;base64,{data}");
        let request = request_with_images();
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        assert_eq!(
            Protocol::ChatCompletions.body("m", &request).unwrap()["messages"],
            json!([
                {"role": "user", "content": [image]},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "image/png, 1 kB"},
                {"role": "user", "content": [
                    {"type": "text", "text": "[images of a tool result]"},
                    image,
                    {"type": "text", "text": "two"},
                ]},
            ])
        );
        let image = json!({"type": "input_image", "image_url": url});
        assert_eq!(
            Protocol::Responses.body("m", &request).unwrap()["input"],
            json!([
                {"role": "user", "content": [image]},
                {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": [
                    {"type": "input_text", "text": "image/png, 1 kB"},
                    image,
                ]},
                {"role": "user", "content": "two"},
            ])
        );
        let source = json!({"type": "base64", "media_type": "image/png", "data": data});
        let image = json!({"type": "image", "source": source});
        assert_eq!(
            Protocol::Messages.body("m", &request).unwrap()["messages"],
            json!([
                {"role": "user", "content": [image]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "read", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "is_error": false, "content": [
                        {"type": "text", "text": "image/png, 1 kB"},
                        image,
                    ]},
                ]},
                {"role": "user", "content": [
                    {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}},
                ]},
            ])
        );
        let image = json!({"inlineData": {"mimeType": "image/png", "data": data}});
        assert_eq!(
            Protocol::GenerateContent.body("m", &request).unwrap()["contents"],
            json!([
                {"role": "user", "parts": [image]},
                {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "read", "response": {"result": "image/png, 1 kB"}}},
                    image,
                ]},
                {"role": "user", "parts": [{"text": "two"}]},
            ])
        );
    }

    #[test]
    fn images_of_the_last_results_follow_in_a_user_message() {
        let mut request = request_with_images();
        request.messages.pop();
        let body = Protocol::ChatCompletions.body("m", &request).unwrap();
        let last = &body["messages"][3];
        assert_eq!(last["role"], "user");
        assert_eq!(last["content"][1]["type"], "image_url");
    }

    #[test]
    fn key_is_sent_in_the_header_of_its_protocol() {
        crate::provider::client::install_tls();
        let client = reqwest::Client::new();
        let key_header = |protocol: Protocol| {
            let request = protocol.authorize(client.post("http://127.0.0.1"), Some("k"));
            let headers = request.build().unwrap().headers().clone();
            ["authorization", "x-api-key", "x-goog-api-key"]
                .into_iter()
                .find(|name| headers.get(*name).is_some_and(HeaderValue::is_sensitive))
        };
        assert_eq!(key_header(Protocol::ChatCompletions), Some("authorization"));
        assert_eq!(key_header(Protocol::Responses), Some("authorization"));
        assert_eq!(key_header(Protocol::Messages), Some("x-api-key"));
        assert_eq!(
            key_header(Protocol::GenerateContent),
            Some("x-goog-api-key")
        );
    }
}
