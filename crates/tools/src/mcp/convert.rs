//! Conversion of the tools and results of MCP servers to Allstop's types.

use std::sync::Arc;

use allstop_core::Effect;
use rmcp::model::{
    CallToolResult, ContentBlock, ResourceContents, ServerResult, Tool, ToolAnnotations,
};
use serde_json::Value;

use super::limits::{DESCRIPTION_CHARS_MAX, SCHEMA_BYTES_MAX};
use crate::registry::{ArgumentCheck, TOOL_NAME_LEN_MAX};

/// A tool as described by its server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpToolDefinition {
    /// Name at the server.
    pub(super) tool: Arc<str>,
    /// Name for the model.
    pub(super) name: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) input_schema: Arc<Value>,
    pub(super) effect: Effect,
}

impl McpToolDefinition {
    /// Converts a tool. The error is the reason, for people, why the tool cannot be used.
    pub(super) fn of(server: &str, tool: Tool) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let plain = tool.name.chars().map(|c| if fits(c) { c } else { '_' });
        let name = format!("{server}__{}", plain.collect::<String>());
        if name.len() > TOOL_NAME_LEN_MAX {
            return Err(format!("its name is longer than {TOOL_NAME_LEN_MAX} bytes"));
        }
        let input_schema = Value::Object(Arc::unwrap_or_clone(tool.input_schema));
        if input_schema.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(format!(
                "its schema is longer than {SCHEMA_BYTES_MAX} bytes"
            ));
        }
        if let Err(error) = ArgumentCheck::compile(&input_schema) {
            return Err(format!("its schema is invalid: {error}"));
        }
        let description = tool.description.as_deref().unwrap_or_default();
        Ok(Self {
            tool: tool.name.into(),
            name: name.into(),
            description: shortened(description).into(),
            input_schema: Arc::new(input_schema),
            effect: effect(tool.annotations.as_ref()),
        })
    }
}

/// Consequence of repeating a call, from the server's hints. A call is irreversible unless a hint describes it as
/// read-only or idempotent. The hint that a tool only adds data does not help, because no hint describes how to undo
/// the addition.
pub(super) fn effect(hints: Option<&ToolAnnotations>) -> Effect {
    let hinted = |hint: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(hint) == Some(true);
    if hinted(|hints| hints.read_only_hint) {
        Effect::ReadOnly
    } else if hinted(|hints| hints.idempotent_hint) {
        Effect::Idempotent
    } else {
        Effect::Irreversible
    }
}

fn shortened(description: &str) -> String {
    match description.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{}…", description.get(..end).unwrap_or_default()),
        None => description.to_owned(),
    }
}

/// Returns the text of a result, and true if the result is an error. `None` if the value is not the result of a tool.
pub(super) fn text_of(result: ServerResult) -> Option<(String, bool)> {
    let result = match result {
        ServerResult::CallToolResult(result) => result,
        // An empty result is also valid.
        ServerResult::EmptyResult(_) => CallToolResult::success(Vec::new()),
        _ => return None,
    };
    let is_error = result.is_error == Some(true);
    let mut text = String::new();
    for block in &result.content {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &block_text(block);
    }
    if text.is_empty() {
        text = match &result.structured_content {
            Some(value) => value.to_string(),
            None => "[no output]".to_owned(),
        };
    }
    Some((text, is_error))
}

fn block_text(block: &ContentBlock) -> String {
    let binary = |kind: &str, mime: &str, data: &str| {
        format!("[{kind} {mime}, {} bytes in base64, not shown]", data.len())
    };
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => binary("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => binary("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => binary(uri, mime_type.as_deref().unwrap_or("data"), blob),
            _ => "[content of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of an unknown kind]".to_owned(),
    }
}
