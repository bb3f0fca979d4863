//! Our messages and tools as genai's. Its types own their text, so each text is copied once and nothing else.

use std::collections::HashMap;

use allstop_core::message::Arguments;
use allstop_core::{CallId, Message, ToolCall, ToolResult};
use genai::chat::{
    ChatMessage, ChatRequest, ChatRole, ContentPart, MessageContent, Tool, ToolResponse,
};
use serde_json::{Value, json};

use crate::{ModelRequest, ToolDeclaration};

/// The request in genai's words.
pub(super) fn chat_request(request: &ModelRequest) -> ChatRequest {
    let mut chat = ChatRequest::new(messages(request));
    chat.system = request.system.as_deref().map(str::to_owned);
    if !request.tools.is_empty() {
        chat.tools = Some(request.tools.iter().map(tool).collect());
    }
    chat
}

fn messages(request: &ModelRequest) -> Vec<ChatMessage> {
    let mut out: Vec<ChatMessage> = Vec::with_capacity(request.messages.len());
    // Some providers want a result to repeat the name of its tool.
    let mut tool_names: HashMap<&CallId, &str> = HashMap::new();
    for message in &request.messages {
        match &**message {
            Message::User { text }
            | Message::Note { text }
            | Message::Summary { text }
            | Message::StopMarker { text } => push_user(&mut out, text),
            Message::Assistant { text, tool_calls } => {
                tool_names.extend(tool_calls.iter().map(|call| (&call.id, &*call.name)));
                push_assistant(&mut out, text, tool_calls);
            }
            Message::Tool(result) => {
                push_result(&mut out, result, tool_names.get(&result.call_id).copied());
            }
        }
    }
    out
}

/// Neighbours become one message: chat templates of local models refuse two user messages in a row.
fn push_user(out: &mut Vec<ChatMessage>, text: &str) {
    match out.last_mut() {
        Some(last) if matches!(last.role, ChatRole::User) => {
            last.content.push(ContentPart::Text(text.to_owned()));
        }
        _ => out.push(ChatMessage::user(text)),
    }
}

fn push_assistant(out: &mut Vec<ChatMessage>, text: &str, calls: &[ToolCall]) {
    let mut parts = Vec::with_capacity(calls.len() + 1);
    if !text.is_empty() {
        parts.push(ContentPart::Text(text.to_owned()));
    }
    parts.extend(calls.iter().map(|call| {
        ContentPart::ToolCall(genai::chat::ToolCall {
            call_id: call.id.as_str().to_owned(),
            fn_name: call.name.as_ref().to_owned(),
            fn_arguments: arguments(&call.arguments),
            thought_signatures: None,
        })
    }));
    // Providers refuse an empty message.
    if !parts.is_empty() {
        out.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
    }
}

/// Every provider takes an object here and some take nothing else, so what the model wrote is shown to it in one.
fn arguments(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Json(object) if object.is_object() => Value::clone(object),
        Arguments::Json(other) => json!({"not_an_object": other}),
        Arguments::Malformed(text) => json!({"not_json": text}),
    }
}

/// The results of one message's calls become one message: some providers want them together.
fn push_result(out: &mut Vec<ChatMessage>, result: &ToolResult, name: Option<&str>) {
    let mut response = ToolResponse::new(result.call_id.as_str(), &*result.content);
    response.fn_name = name.map(str::to_owned);
    match out.last_mut() {
        Some(last) if matches!(last.role, ChatRole::Tool) => {
            last.content.push(ContentPart::ToolResponse(response));
        }
        _ => out.push(ChatMessage::from(response)),
    }
}

fn tool(declaration: &ToolDeclaration) -> Tool {
    Tool::new(&*declaration.name)
        .with_description(&*declaration.description)
        .with_schema((*declaration.input_schema).clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn neighbours_are_joined_and_results_know_their_tool() {
        let call = |id: &str, arguments| ToolCall {
            id: id.into(),
            name: "shell".into(),
            arguments,
        };
        let result = |id: &str| {
            Message::Tool(ToolResult {
                call_id: id.into(),
                content: "ok".into(),
                is_error: false,
            })
        };
        let request = ModelRequest::new(
            [
                Message::user("one"),
                Message::Assistant {
                    text: "".into(),
                    tool_calls: vec![
                        call("a", Arguments::from(json!({"x": 1}))),
                        call("b", Arguments::Malformed("{\"x".into())),
                    ],
                },
                result("a"),
                result("b"),
                Message::Assistant {
                    text: "".into(),
                    tool_calls: vec![],
                },
                Message::StopMarker {
                    text: "stopped".into(),
                },
                Message::user("two"),
            ]
            .map(Arc::new)
            .to_vec(),
        );
        let chat = serde_json::to_value(chat_request(&request).messages).unwrap();
        let roles: Vec<_> = chat
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["role"].clone())
            .collect();
        assert_eq!(roles, ["User", "Assistant", "Tool", "User"]);
        let text = chat.to_string();
        assert!(text.contains(r#""fn_arguments":{"x":1}"#), "{text}");
        assert!(
            text.contains(r#""fn_arguments":{"not_json":"{\"x"}"#),
            "{text}"
        );
        assert_eq!(text.matches(r#""fn_name":"shell""#).count(), 4, "{text}");
        assert!(text.contains("stopped") && text.contains("two"), "{text}");
    }
}
