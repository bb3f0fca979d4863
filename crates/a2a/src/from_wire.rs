//! Conversion of messages of the protocol to messages of a task.

use std::collections::HashMap;
use std::sync::Arc;

use a2a::A2AError;
use allstop_core::TaskId;
use allstop_task::TaskMessage;
use allstop_task::model::{JsonMap, MessagePart, MessageSender, PartContent, TaskState};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Maximum size in bytes of an id that a client has chosen. Such ids are keys of tables and parts of file names.
const ID_BYTES_MAX: usize = 256;

/// Checks an id that a client has chosen.
///
/// # Errors
/// Returns an error if the id is empty, too long, or contains control characters.
pub(crate) fn check_id(field: &str, id: &str) -> Result<(), A2AError> {
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) {
        return Err(A2AError::invalid_params(format!(
            "{field} must have 1 to {ID_BYTES_MAX} bytes and no control characters"
        )));
    }
    Ok(())
}

/// Converts a message of a client.
///
/// # Errors
/// Returns an error if the message has no id, has no part, or does not have the role `user`.
pub(crate) fn message(message: a2a::Message) -> Result<TaskMessage, A2AError> {
    check_id("message.messageId", &message.message_id)?;
    if message.parts.is_empty() {
        return Err(A2AError::invalid_params("message.parts must not be empty"));
    }
    if message.role != a2a::Role::User {
        return Err(A2AError::invalid_params("message.role must be ROLE_USER"));
    }
    Ok(TaskMessage {
        id: message.message_id.into(),
        role: MessageSender::User,
        parts: message.parts.into_iter().map(part).collect(),
        metadata: map(message.metadata),
        extensions: texts(message.extensions),
        reference_task_ids: message
            .reference_task_ids
            .into_iter()
            .flatten()
            .map(TaskId::from)
            .collect(),
    })
}

fn part(part: a2a::Part) -> MessagePart {
    MessagePart {
        content: match part.content {
            a2a::PartContent::Text(text) => PartContent::Text(text.into()),
            a2a::PartContent::Raw(bytes) => PartContent::Raw(STANDARD.encode(bytes).into()),
            a2a::PartContent::Url(url) => PartContent::Url(url.into()),
            a2a::PartContent::Data(value) => PartContent::Data(value),
        },
        media_type: part.media_type.map(Arc::from),
        filename: part.filename.map(Arc::from),
        metadata: map(part.metadata),
    }
}

/// Converts a map, which has no order, to a map in the order of its keys. Therefore equal maps have equal records.
pub(crate) fn map(map: Option<HashMap<String, serde_json::Value>>) -> JsonMap {
    let mut fields: JsonMap = map.into_iter().flatten().collect();
    fields.sort_keys();
    fields
}

fn texts(texts: Option<Vec<String>>) -> Vec<Arc<str>> {
    texts.into_iter().flatten().map(Arc::from).collect()
}

/// Converts the state of a filter; `None` if the filter matches all states.
pub(crate) fn state(state: &a2a::TaskState) -> Option<TaskState> {
    Some(match state {
        a2a::TaskState::Unspecified => return None,
        a2a::TaskState::Submitted => TaskState::Submitted,
        a2a::TaskState::Working => TaskState::Working,
        a2a::TaskState::Completed => TaskState::Completed,
        a2a::TaskState::Failed => TaskState::Failed,
        a2a::TaskState::Canceled => TaskState::Canceled,
        a2a::TaskState::InputRequired => TaskState::InputRequired,
        a2a::TaskState::Rejected => TaskState::Rejected,
        a2a::TaskState::AuthRequired => TaskState::AuthRequired,
    })
}
