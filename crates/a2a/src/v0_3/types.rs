//! JSON types of A2A 0.3, from its JSON schema. Only the fields that this server reads or writes.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(super) type Metadata = HashMap<String, Value>;

/// Implements a discriminator: the field `kind` of an object, which has one permitted value.
macro_rules! kind {
    ($name:ident, $word:literal) => {
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub(super) enum $name {
            #[default]
            #[serde(rename = $word)]
            Only,
        }
    };
}

kind!(MessageKind, "message");
kind!(TaskKind, "task");
kind!(StatusUpdateKind, "status-update");
kind!(ArtifactUpdateKind, "artifact-update");

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03Message {
    #[serde(default)]
    pub(super) kind: MessageKind,
    pub(super) message_id: String,
    pub(super) role: V03Role,
    pub(super) parts: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference_task_ids: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extensions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum V03Role {
    User,
    Agent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Part {
    Text {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    File {
        file: File,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    Data {
        data: Map<String, Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
}

/// A file with either its content as base64 or its address.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct File {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mime_type: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03Task {
    pub(super) kind: TaskKind,
    pub(super) id: String,
    pub(super) context_id: String,
    pub(super) status: V03TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) artifacts: Option<Vec<V03Artifact>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<Vec<V03Message>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03TaskStatus {
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<V03Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03Artifact {
    pub(super) artifact_id: String,
    pub(super) parts: Vec<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extensions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03StatusUpdate {
    pub(super) kind: StatusUpdateKind,
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) status: V03TaskStatus,
    /// True for the last event of a stream.
    #[serde(rename = "final")]
    pub(super) is_final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03ArtifactUpdate {
    pub(super) kind: ArtifactUpdateKind,
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) artifact: V03Artifact,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) append: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_chunk: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
pub(super) struct V03SendParams {
    pub(super) message: V03Message,
    pub(super) configuration: Option<SendConfiguration>,
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendConfiguration {
    pub(super) accepted_output_modes: Option<Vec<String>>,
    pub(super) blocking: Option<bool>,
    pub(super) history_length: Option<u32>,
    pub(super) push_notification_config: Option<V03PushConfig>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct V03PushConfig {
    pub(super) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) authentication: Option<V03PushAuthentication>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct V03PushAuthentication {
    pub(super) schemes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credentials: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskPushConfig {
    pub(super) task_id: String,
    pub(super) push_notification_config: V03PushConfig,
}

/// Parameters of the operations on one task, and on one webhook of a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V03TaskParams {
    /// Id of the task.
    pub(super) id: String,
    pub(super) history_length: Option<u32>,
    pub(super) push_notification_config_id: Option<String>,
    pub(super) metadata: Option<Metadata>,
}
