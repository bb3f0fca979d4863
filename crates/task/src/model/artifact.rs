//! Artifacts: results from the executor, the code that does the work of a task.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::message::{JsonMap, MessagePart};

/// Result of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Id, unique within the task.
    pub id: Arc<str>,
    /// Name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Description, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
    /// Content.
    pub parts: Vec<MessagePart>,
    /// Additional fields from the executor.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
    /// URIs of the protocol extensions that the artifact uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Arc<str>>,
}

/// A new artifact, or new parts of an existing one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactUpdate {
    /// The artifact, or the parts to add.
    pub artifact: Arc<Artifact>,
    /// True if the parts are added to the existing artifact with this id. If false, the artifact replaces the existing
    /// one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// True if this is the last update of the artifact.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last_chunk: bool,
    /// Additional fields from the executor.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub metadata: JsonMap,
}

impl Artifact {
    /// Creates an artifact with one part of text.
    pub fn text(id: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            name: None,
            description: None,
            parts: vec![MessagePart::text(text)],
            metadata: JsonMap::new(),
            extensions: Vec::new(),
        }
    }
}

impl From<Artifact> for ArtifactUpdate {
    fn from(artifact: Artifact) -> Self {
        Self {
            artifact: Arc::new(artifact),
            append: false,
            is_last_chunk: true,
            metadata: JsonMap::new(),
        }
    }
}
