//! Conversion of responses of the service to A2A 0.3.

use a2a::{SendMessageResponse, StreamResponse, TaskPushNotificationConfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde_json::{Map, Value};

use super::from_v0_3::{WRAPPED_DATA, WRAPPED_VALUE};
use super::types::{
    ArtifactUpdateKind, File, MessageKind, Metadata, Part, StatusUpdateKind, TaskKind,
    TaskPushConfig, V03Artifact, V03ArtifactUpdate, V03Message, V03PushAuthentication,
    V03PushConfig, V03Role, V03StatusUpdate, V03Task, V03TaskStatus,
};

/// Returns the result of a sent message: a task or a message.
pub(super) fn send_response(response: SendMessageResponse) -> serde_json::Result<Value> {
    match response {
        SendMessageResponse::Task(task) => serde_json::to_value(self::task(task)),
        SendMessageResponse::Message(message) => serde_json::to_value(self::message(message)),
    }
}

/// Returns an event of a stream: a task, a message or an update.
pub(super) fn event(event: StreamResponse) -> serde_json::Result<Value> {
    match event {
        StreamResponse::Task(task) => serde_json::to_value(self::task(task)),
        StreamResponse::Message(message) => serde_json::to_value(self::message(message)),
        StreamResponse::StatusUpdate(update) => {
            let is_final = ends_stream(&update.status.state);
            serde_json::to_value(V03StatusUpdate {
                kind: StatusUpdateKind::Only,
                task_id: update.task_id,
                context_id: update.context_id,
                status: status(update.status),
                is_final,
                metadata: update.metadata,
            })
        }
        StreamResponse::ArtifactUpdate(update) => serde_json::to_value(V03ArtifactUpdate {
            kind: ArtifactUpdateKind::Only,
            task_id: update.task_id,
            context_id: update.context_id,
            artifact: artifact(update.artifact),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata,
        }),
    }
}

/// True for a state after which the streams of a task end.
fn ends_stream(state: &a2a::TaskState) -> bool {
    state.is_terminal() || *state == a2a::TaskState::InputRequired
}

pub(super) fn task(task: a2a::Task) -> V03Task {
    let artifacts = task.artifacts;
    let history = task.history;
    V03Task {
        kind: TaskKind::Only,
        id: task.id,
        context_id: task.context_id,
        status: status(task.status),
        artifacts: artifacts.map(|artifacts| artifacts.into_iter().map(artifact).collect()),
        history: history.map(|history| history.into_iter().map(message).collect()),
        metadata: task.metadata,
    }
}

pub(super) fn push_config(config: TaskPushNotificationConfig) -> TaskPushConfig {
    TaskPushConfig {
        task_id: config.task_id,
        push_notification_config: V03PushConfig {
            url: config.url,
            id: config.id,
            token: config.token,
            authentication: config.authentication.map(|known| V03PushAuthentication {
                schemes: vec![known.scheme],
                credentials: known.credentials,
            }),
        },
    }
}

fn status(status: a2a::TaskStatus) -> V03TaskStatus {
    let timestamp = status.timestamp;
    V03TaskStatus {
        state: state(&status.state),
        message: status.message.map(message),
        timestamp: timestamp.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)),
    }
}

fn message(message: a2a::Message) -> V03Message {
    V03Message {
        kind: MessageKind::Only,
        message_id: message.message_id,
        role: match message.role {
            a2a::Role::User => V03Role::User,
            a2a::Role::Agent | a2a::Role::Unspecified => V03Role::Agent,
        },
        parts: message.parts.into_iter().map(part).collect(),
        context_id: message.context_id,
        task_id: message.task_id,
        reference_task_ids: message.reference_task_ids,
        extensions: message.extensions,
        metadata: message.metadata,
    }
}

fn artifact(artifact: a2a::Artifact) -> V03Artifact {
    V03Artifact {
        artifact_id: artifact.artifact_id,
        parts: artifact.parts.into_iter().map(part).collect(),
        name: artifact.name,
        description: artifact.description,
        extensions: artifact.extensions,
        metadata: artifact.metadata,
    }
}

fn part(part: a2a::Part) -> Part {
    let metadata = part.metadata;
    let file = File {
        name: part.filename,
        mime_type: part.media_type,
        ..File::default()
    };
    match part.content {
        a2a::PartContent::Text(text) => Part::Text { text, metadata },
        a2a::PartContent::Data(data) => {
            let (data, metadata) = wrapped(data, metadata);
            Part::Data { data, metadata }
        }
        a2a::PartContent::Raw(bytes) => Part::File {
            file: File {
                bytes: Some(STANDARD.encode(bytes)),
                ..file
            },
            metadata,
        },
        a2a::PartContent::Url(uri) => Part::File {
            file: File {
                uri: Some(uri),
                ..file
            },
            metadata,
        },
    }
}

/// Wraps content that is not an object.
fn wrapped(data: Value, metadata: Option<Metadata>) -> (Map<String, Value>, Option<Metadata>) {
    match data {
        Value::Object(fields) => (fields, metadata),
        value => {
            let mut metadata = metadata.unwrap_or_default();
            metadata.insert(WRAPPED_DATA.to_owned(), Value::Bool(true));
            let fields = Map::from_iter([(WRAPPED_VALUE.to_owned(), value)]);
            (fields, Some(metadata))
        }
    }
}

fn state(state: &a2a::TaskState) -> &'static str {
    match state {
        a2a::TaskState::Unspecified => "unknown",
        a2a::TaskState::Submitted => "submitted",
        a2a::TaskState::Working => "working",
        a2a::TaskState::Completed => "completed",
        a2a::TaskState::Failed => "failed",
        a2a::TaskState::Canceled => "canceled",
        a2a::TaskState::InputRequired => "input-required",
        a2a::TaskState::Rejected => "rejected",
        a2a::TaskState::AuthRequired => "auth-required",
    }
}

#[cfg(test)]
#[path = "to_v0_3_tests.rs"]
mod tests;
