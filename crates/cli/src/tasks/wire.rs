//! Tasks and events in the JSON of a server. The types contain only the fields that the commands show.

use std::borrow::Cow;
use std::sync::Arc;

use allstop_a2a::{RECEIPT_EXTENSION, UNREADABLE_EXTENSION};
use allstop_core::{Cause, Receipt, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// A task of the server.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerTask {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) context_id: String,
    pub(crate) status: ServerStatus,
    #[serde(default)]
    pub(crate) history: Vec<ServerMessage>,
    #[serde(default)]
    pub(crate) artifacts: Vec<ServerArtifact>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerStatus {
    pub(crate) state: ServerTaskState,
    #[serde(default)]
    pub(crate) message: Option<ServerMessage>,
    #[serde(default)]
    pub(crate) timestamp: Option<Timestamp>,
}

/// State of a task: its name in the A2A protocol, such as `TASK_STATE_WORKING`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct ServerTaskState(String);

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerMessage {
    #[serde(default)]
    pub(crate) role: String,
    #[serde(default)]
    parts: Vec<ServerPart>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerArtifact {
    #[serde(default)]
    artifact_id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    parts: Vec<ServerPart>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerPart {
    text: Option<String>,
    filename: Option<String>,
    url: Option<String>,
    data: Option<Value>,
}

/// Page of the task list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskListPage {
    #[serde(default)]
    pub(crate) tasks: Vec<Value>,
    #[serde(default)]
    pub(crate) next_page_token: String,
}

/// Event of a task's stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum ServerEvent {
    Task(ServerTask),
    StatusUpdate {
        status: ServerStatus,
        #[serde(default)]
        metadata: Value,
    },
    ArtifactUpdate {
        artifact: ServerArtifact,
        #[serde(default)]
        append: bool,
        #[serde(default)]
        last_chunk: bool,
    },
    Message(ServerMessage),
}

impl ServerTask {
    /// Receipt and cause of the task's end, if the task was stopped. A receipt is the report of a stop.
    pub(crate) fn end(&self) -> TaskEndInfo {
        TaskEndInfo::of(&self.metadata)
    }

    /// True if the server cannot read the content of the task.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.metadata.get(UNREADABLE_EXTENSION).is_some()
    }

    /// Describes a task whose worker is lost, and that no other worker has taken over.
    pub(crate) fn lost_worker(&self) -> Option<&'static str> {
        let is_lost = self.end().worker.as_deref() == Some("lost");
        is_lost.then_some(
            "the task's worker is lost; the task waits until another worker takes it over, or for a stop",
        )
    }

    /// Describes a stop that was recorded, but whose end is not confirmed.
    pub(crate) fn pending_stop(&self) -> Option<&'static str> {
        let requested = self.end().requested_stop;
        let requested = requested.filter(|_| !self.status.state.is_terminal())?;
        Some(match &*requested {
            "no_owner" => "the stop request is recorded; no worker has the task now",
            _ => "the stop request is recorded; the task's worker has not confirmed it yet",
        })
    }
}

/// Entry of the receipt extension in the metadata of a task.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct TaskEndInfo {
    #[serde(default)]
    pub(crate) receipt: Option<Arc<Receipt>>,
    #[serde(default)]
    pub(crate) cause: Option<Cause>,
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// Receipt of a later stop, which covered work that was still running after the end of the task.
    #[serde(default, rename = "leftWork")]
    pub(crate) left_work: Option<Arc<Receipt>>,
    /// State of a stop that was recorded, but whose end the worker of the task has not confirmed.
    #[serde(default, rename = "requestedStop")]
    pub(crate) requested_stop: Option<String>,
    /// `lost` if the worker of a running task is lost.
    #[serde(default)]
    pub(crate) worker: Option<String>,
}

impl TaskEndInfo {
    /// The entry in this metadata. The result is empty if the server does not support receipts.
    pub(crate) fn of(metadata: &Value) -> Self {
        let entry = metadata.get(RECEIPT_EXTENSION);
        let entry = entry.and_then(|entry| Self::deserialize(with_integers(entry)).ok());
        entry.unwrap_or_default()
    }
}

/// Converts whole numbers to integers: every number in the metadata of the protocol is a double, and the fields of a
/// receipt are integers.
fn with_integers(value: &Value) -> Value {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and in the range")]
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => (whole as i64).into(),
            _ => value.clone(),
        },
        Value::Array(values) => values.iter().map(with_integers).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), with_integers(value)))
                    .collect(),
            )
        }
        _ => value.clone(),
    }
}

impl ServerTaskState {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.word() == word
    }

    /// True if the state is final: the task has ended.
    pub(crate) fn is_terminal(&self) -> bool {
        ["completed", "failed", "canceled", "rejected"].contains(&&*self.word())
    }

    /// The state in words, such as `working` or `input required`.
    pub(crate) fn word(&self) -> String {
        let word = self.0.strip_prefix("TASK_STATE_").unwrap_or(&self.0);
        word.to_lowercase().replace('_', " ")
    }
}

impl ServerMessage {
    pub(crate) fn is_of_user(&self) -> bool {
        self.role == "ROLE_USER"
    }

    pub(crate) fn text(&self) -> String {
        text_of(&self.parts)
    }
}

impl ServerArtifact {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.artifact_id)
    }

    pub(crate) fn text(&self) -> String {
        text_of(&self.parts)
    }

    pub(super) fn has_id_of(&self, other: &Self) -> bool {
        self.artifact_id == other.artifact_id
    }

    /// Bytes of the shown content.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.text().len()).sum()
    }

    /// Adds the parts of a chunk. A text continues the text before it on the same line.
    pub(super) fn append(&mut self, chunk: Self) {
        for part in chunk.parts {
            match (self.parts.last_mut(), &part.text) {
                (
                    Some(ServerPart {
                        text: Some(text), ..
                    }),
                    Some(more),
                ) => text.push_str(more),
                _ => self.parts.push(part),
            }
        }
    }
}

impl ServerPart {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self {
                text: Some(text), ..
            } => text.into(),
            Self { url: Some(url), .. } => url.into(),
            Self {
                data: Some(data), ..
            } => data.to_string().into(),
            Self { filename, .. } => format!("[{}]", filename.as_deref().unwrap_or("file")).into(),
        }
    }
}

/// Text of the parts of a message or an artifact. Each part begins on a new line.
fn text_of(parts: &[ServerPart]) -> String {
    let texts = parts.iter().map(ServerPart::text);
    texts.collect::<Vec<_>>().join("\n")
}
