//! Conversion of tasks, messages and records to the types of the protocol.

use std::collections::HashMap;
use std::sync::Arc;

use allstop_core::Timestamp;
use allstop_task::model::{
    Artifact, JsonMap, MessagePart, MessageSender, PartContent, TaskEnding, TaskStatus,
};
use allstop_task::{LivePiece, Task, TaskMessage, TaskRecord, TaskState, TaskSummary};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use serde_json::Value;

use crate::receipt_extension;
use crate::response_memory::json_bytes;

/// Level of detail of a task in a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskDetail {
    /// Maximum number of messages in the history, counted from the newest; `None` for all.
    pub(crate) history_len_max: Option<usize>,
    /// True to include the artifacts.
    pub(crate) has_artifacts: bool,
}

impl TaskDetail {
    /// All details, with a history of at most this many messages.
    pub(crate) fn with_history(len_max: Option<i32>) -> Self {
        Self {
            history_len_max: len_max.map(|len| usize::try_from(len).unwrap_or(0)),
            has_artifacts: true,
        }
    }
}

/// Size of a task as JSON, in bytes. The size is computed before the conversion, which needs several times as much memory.
pub(crate) fn bytes(task: &Task, detail: TaskDetail) -> usize {
    let history: usize = history(task, detail).map(json_bytes).sum();
    let artifacts = task.artifacts.iter().filter(|_| detail.has_artifacts);
    let artifacts: usize = artifacts.map(json_bytes).sum();
    let rest = (&task.reply, &task.status, &task.metadata, &task.ending);
    history + artifacts + json_bytes(&rest)
}

/// The messages of a task, without the oldest ones that the client does not want.
fn history(task: &Task, detail: TaskDetail) -> impl Iterator<Item = &Arc<TaskMessage>> {
    let len = task.history.len();
    let skip = detail
        .history_len_max
        .map_or(0, |max| len.saturating_sub(max));
    task.history.iter().skip(skip)
}

pub(crate) fn task(task: &Task, detail: TaskDetail) -> a2a::Task {
    let history: Vec<_> = history(task, detail)
        .map(|message| self::message(message, task))
        .collect();
    let artifacts = task
        .artifacts
        .iter()
        .map(|artifact| self::artifact(artifact));
    let mut metadata = map(&task.metadata).unwrap_or_default();
    receipt_extension::add(&mut metadata, &task.ending);
    if task.stop_requested.is_some() && !task.has_ended() {
        receipt_extension::add_requested_stop(&mut metadata, "requested");
    }
    a2a::Task {
        id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        status: status(&task.status, Some(&task.ending), task),
        artifacts: (detail.has_artifacts && !task.artifacts.is_empty())
            .then(|| artifacts.collect()),
        history: (!history.is_empty()).then_some(history),
        metadata: (!metadata.is_empty()).then_some(metadata),
    }
}

/// Returns a task whose records cannot be read, with the facts of its last readable record.
pub(crate) fn summary(task: &TaskSummary) -> a2a::Task {
    a2a::Task {
        id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        status: a2a::TaskStatus {
            state: state(task.state),
            message: None,
            timestamp: time(task.updated_at),
        },
        artifacts: None,
        history: None,
        metadata: None,
    }
}

/// Returns the event of a record; `None` for records that clients do not see.
pub(crate) fn event(record: &TaskRecord, task: &Task) -> Option<a2a::StreamResponse> {
    match record {
        TaskRecord::StatusChanged { status, metadata } => {
            Some(status_event(status, metadata, None, task))
        }
        TaskRecord::TaskEnded {
            status,
            metadata,
            ending,
        } => Some(status_event(status, metadata, Some(ending), task)),
        TaskRecord::ArtifactUpdated { update, .. } => Some(a2a::StreamResponse::ArtifactUpdate(
            a2a::TaskArtifactUpdateEvent {
                task_id: task.id.to_string(),
                context_id: task.context_id.to_string(),
                artifact: artifact(&update.artifact),
                append: Some(update.append),
                last_chunk: Some(update.is_last_chunk),
                metadata: map(&update.metadata),
            },
        )),
        TaskRecord::Replied { message, .. } => {
            Some(a2a::StreamResponse::Message(reply(message, task)))
        }
        // A message of the client: the task no longer waits for the client.
        TaskRecord::MessageReceived { at, .. } => {
            let status = TaskStatus {
                state: TaskState::Submitted,
                message: None,
                at: *at,
            };
            Some(status_event(&status, &JsonMap::new(), None, task))
        }
        TaskRecord::TaskCreated { .. }
        | TaskRecord::ExecutionStarted { .. }
        | TaskRecord::StopRequested { .. }
        | TaskRecord::StopRefused { .. }
        | TaskRecord::HandedOver { .. }
        | TaskRecord::LateReceipt { .. } => None,
    }
}

/// Returns the event of a piece of text. A piece is never the last chunk: the durable artifact follows.
pub(crate) fn piece(piece: &LivePiece, task: &Task) -> a2a::StreamResponse {
    let artifact = Artifact {
        name: piece.name.clone(),
        ..Artifact::text(Arc::clone(&piece.artifact_id), Arc::clone(&piece.text))
    };
    a2a::StreamResponse::ArtifactUpdate(a2a::TaskArtifactUpdateEvent {
        task_id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        artifact: self::artifact(&artifact),
        append: Some(piece.append),
        last_chunk: Some(false),
        metadata: None,
    })
}

fn status_event(
    status: &TaskStatus,
    metadata: &JsonMap,
    ending: Option<&TaskEnding>,
    task: &Task,
) -> a2a::StreamResponse {
    let mut metadata = map(metadata).unwrap_or_default();
    if let Some(ending) = ending {
        receipt_extension::add(&mut metadata, ending);
    }
    a2a::StreamResponse::StatusUpdate(a2a::TaskStatusUpdateEvent {
        task_id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        status: self::status(status, ending, task),
        metadata: (!metadata.is_empty()).then_some(metadata),
    })
}

/// Converts a status. The message of a failed task without a message is its error, because clients show the message to
/// people.
fn status(status: &TaskStatus, ending: Option<&TaskEnding>, task: &Task) -> a2a::TaskStatus {
    let error = ending.and_then(|ending| ending.error.as_deref());
    let error = || error.map(|error| error_message(error, task));
    let message = status.message.as_ref();
    a2a::TaskStatus {
        state: state(status.state),
        message: message.map(|m| self::message(m, task)).or_else(error),
        timestamp: time(status.at),
    }
}

/// The id is the same in each response, because clients recognise a message by its id.
fn error_message(error: &str, task: &Task) -> a2a::Message {
    a2a::Message {
        message_id: format!("{}-error", task.id),
        context_id: Some(task.context_id.to_string()),
        task_id: Some(task.id.to_string()),
        role: a2a::Role::Agent,
        parts: vec![a2a::Part {
            content: a2a::PartContent::Text(error.to_owned()),
            filename: None,
            media_type: None,
            metadata: None,
        }],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    }
}

/// Converts the reply of an executor that answered with a message and created no task.
pub(crate) fn reply(reply: &TaskMessage, task: &Task) -> a2a::Message {
    a2a::Message {
        task_id: None,
        ..message(reply, task)
    }
}

/// The end of a task whose executor answered with a message.
pub(crate) fn reply_as_status(reply: a2a::Message, task: &Task) -> a2a::StreamResponse {
    a2a::StreamResponse::StatusUpdate(a2a::TaskStatusUpdateEvent {
        task_id: task.id.to_string(),
        context_id: task.context_id.to_string(),
        status: a2a::TaskStatus {
            state: a2a::TaskState::Completed,
            message: Some(reply),
            timestamp: None,
        },
        metadata: None,
    })
}

fn message(message: &TaskMessage, task: &Task) -> a2a::Message {
    a2a::Message {
        message_id: message.id.to_string(),
        context_id: Some(task.context_id.to_string()),
        task_id: Some(task.id.to_string()),
        role: match message.role {
            MessageSender::User => a2a::Role::User,
            MessageSender::Agent => a2a::Role::Agent,
        },
        parts: message.parts.iter().map(part).collect(),
        metadata: map(&message.metadata),
        extensions: texts(&message.extensions),
        reference_task_ids: (!message.reference_task_ids.is_empty()).then(|| {
            let ids = message.reference_task_ids.iter();
            ids.map(ToString::to_string).collect()
        }),
    }
}

fn artifact(artifact: &Artifact) -> a2a::Artifact {
    a2a::Artifact {
        artifact_id: artifact.id.to_string(),
        name: artifact.name.as_ref().map(ToString::to_string),
        description: artifact.description.as_ref().map(ToString::to_string),
        parts: artifact.parts.iter().map(part).collect(),
        metadata: map(&artifact.metadata),
        extensions: texts(&artifact.extensions),
    }
}

fn part(part: &MessagePart) -> a2a::Part {
    a2a::Part {
        content: match &part.content {
            PartContent::Text(text) => a2a::PartContent::Text(text.to_string()),
            PartContent::Data(value) => a2a::PartContent::Data(value.clone()),
            PartContent::Url(url) => a2a::PartContent::Url(url.to_string()),
            // Executors write raw content as base64. Text that is not base64 is passed on as bytes.
            PartContent::Raw(raw) => a2a::PartContent::Raw(
                STANDARD
                    .decode(raw.as_bytes())
                    .unwrap_or_else(|_| raw.as_bytes().to_vec()),
            ),
        },
        filename: part.filename.as_ref().map(ToString::to_string),
        media_type: part.media_type.as_ref().map(ToString::to_string),
        metadata: map(&part.metadata),
    }
}

fn map(map: &JsonMap) -> Option<HashMap<String, Value>> {
    let fields = map
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    (!map.is_empty()).then(|| fields.collect())
}

fn texts(texts: &[Arc<str>]) -> Option<Vec<String>> {
    (!texts.is_empty()).then(|| texts.iter().map(ToString::to_string).collect())
}

fn time(at: Timestamp) -> Option<DateTime<chrono::Utc>> {
    DateTime::from_timestamp_millis(at.unix_ms())
}

fn state(state: TaskState) -> a2a::TaskState {
    match state {
        TaskState::Submitted => a2a::TaskState::Submitted,
        TaskState::Working => a2a::TaskState::Working,
        TaskState::InputRequired => a2a::TaskState::InputRequired,
        TaskState::AuthRequired => a2a::TaskState::AuthRequired,
        TaskState::Completed => a2a::TaskState::Completed,
        TaskState::Failed => a2a::TaskState::Failed,
        TaskState::Canceled => a2a::TaskState::Canceled,
        TaskState::Rejected => a2a::TaskState::Rejected,
    }
}
