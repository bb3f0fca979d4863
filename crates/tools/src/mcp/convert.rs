//! Conversion of the tools and results of MCP servers to Allstop's types.

use std::sync::Arc;

use allstop_core::counted::counted;
use allstop_core::{Effect, Image, Images};
use rmcp::model::{
    CallToolResult, ContentBlock, ResourceContents, ServerResult, Tool, ToolAnnotations,
};
use serde_json::Value;

use super::limits::{DESCRIPTION_CHARS_MAX, SCHEMA_BYTES_MAX};
use super::task_support::needs_task;
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
    /// True if the tool must be called as a task.
    pub(super) needs_task: bool,
    /// True if the server has a view for the results of the tool (the extension MCP Apps).
    pub(super) has_view: bool,
}

/// Keys of a tool's metadata that name its view: the current form, and the earlier one.
const VIEW_KEYS: [&str; 2] = ["ui", "ui/resourceUri"];

impl McpToolDefinition {
    /// Converts a tool. The error is the reason, for people, why the tool cannot be used.
    pub(super) fn of(server: &str, tool: Tool) -> Result<Self, String> {
        let needs_task = needs_task(&tool);
        let meta = tool.meta.as_ref();
        let has_view = meta.is_some_and(|meta| VIEW_KEYS.iter().any(|key| meta.contains_key(*key)));
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
            needs_task,
            has_view,
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

/// Content of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct McpToolResult {
    pub(super) text: String,
    pub(super) images: Images,
    pub(super) is_error: bool,
}

/// Returns the content of a result. `None` if the value is not the result of a tool.
pub(super) fn content_of(result: ServerResult) -> Option<McpToolResult> {
    let result = match result {
        ServerResult::CallToolResult(result) => result,
        // An empty result is also valid.
        ServerResult::EmptyResult(_) => CallToolResult::success(Vec::new()),
        _ => return None,
    };
    let is_error = result.is_error == Some(true);
    let (mut text, images) = content_of_blocks(&result.content);
    if text.is_empty() {
        text = match &result.structured_content {
            Some(value) => value.to_string(),
            None => "[no output]".to_owned(),
        };
    }
    Some(McpToolResult {
        text,
        images,
        is_error,
    })
}

/// Text and images of blocks, with a note about images that are left out.
pub(super) fn content_of_blocks(blocks: &[ContentBlock]) -> (String, Images) {
    let mut text = String::new();
    let mut images = Vec::new();
    for block in blocks {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &block_text(block, &mut images);
    }
    let (images, left_out) = Images::first_within_limits(images);
    if left_out > 0 {
        let images = counted(left_out as u64, "image is", "images are");
        let note = format!("\n[{images} left out: too many images in one result]");
        text.push_str(&note);
    }
    (text, images)
}

/// Text for a block. Appends the image of the block to `images`.
fn block_text(block: &ContentBlock, images: &mut Vec<Image>) -> String {
    let binary = |kind: &str, mime: &str, data: &str| {
        format!("[{kind} {mime}, {} bytes in base64, not shown]", data.len())
    };
    let mut picture = |kind: &str, mime: &str, data: &str| match Image::from_base64(data) {
        Ok(image) => {
            let text = format!("[{kind}, {}]", image.info());
            images.push(image);
            text
        }
        Err(_) => binary(kind, mime, data),
    };
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => picture("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => binary("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => picture(uri, mime_type.as_deref().unwrap_or("data"), blob),
            _ => "[content of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of an unknown kind]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::image::IMAGES_MAX;
    use serde_json::json;

    use super::*;

    fn content(blocks: &Value) -> McpToolResult {
        let result = serde_json::from_value(json!({ "content": blocks })).unwrap();
        content_of(ServerResult::CallToolResult(result)).unwrap()
    }

    #[test]
    fn images_of_a_result_are_passed_on() {
        let png = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
        let other = json!({"type": "image", "mimeType": "image/tiff", "data": "aGVsbG8="});
        let text = json!({"type": "text", "text": "Look:"});
        let result = content(&json!([text, png, other]));
        assert_eq!(
            result.text,
            "Look:\n[image, image/png, 1 kB]\n[image image/tiff, 8 bytes in base64, not shown]"
        );
        assert_eq!(result.images.len(), 1);
        let many = vec![png; IMAGES_MAX + 1];
        let result = content(&many.into());
        assert_eq!(result.images.len(), IMAGES_MAX);
        assert!(
            result
                .text
                .ends_with("[1 image is left out: too many images in one result]")
        );
    }
}
