//! Messages between the client of a task and the executor that does the work of the task.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId};
use serde::{Deserialize, Serialize};

/// Additional fields from clients and executors. The manager does not interpret them.
pub type JsonMap = serde_json::Map<String, serde_json::Value>;

/// Message to or from an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskMessage {
    /// Id, chosen by the sender. A second message with this id starts no execution.
    pub id: MessageId,
    /// Sender.
    pub role: MessageSender,
    /// Content.
    pub parts: Vec<MessagePart>,
    /// Additional fields from the sender.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
    /// URIs of the protocol extensions that the message uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Arc<str>>,
    /// Other tasks to which the message refers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<TaskId>,
}

/// Sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSender {
    /// The client.
    User,
    /// The executor.
    Agent,
}

/// Part of a message or an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagePart {
    /// Content of the part.
    #[serde(flatten)]
    pub content: PartContent,
    /// MIME type of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<Arc<str>>,
    /// Name for a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<Arc<str>>,
    /// Additional fields from the sender.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}

/// Content of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartContent {
    /// Text.
    Text(Arc<str>),
    /// A JSON value.
    Data(serde_json::Value),
    /// Address of a file.
    Url(Arc<str>),
    /// Bytes of a file, in base64.
    Raw(Arc<str>),
}

impl TaskMessage {
    /// Creates a message with one part of text.
    pub fn text(id: impl Into<MessageId>, role: MessageSender, text: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            role,
            parts: vec![MessagePart::text(text)],
            metadata: JsonMap::new(),
            extensions: Vec::new(),
            reference_task_ids: Vec::new(),
        }
    }
}

impl MessagePart {
    /// Creates a part of text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self {
            content: PartContent::Text(text.into()),
            media_type: None,
            filename: None,
            metadata: JsonMap::new(),
        }
    }
}
