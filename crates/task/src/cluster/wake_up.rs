//! Wake-ups: which task needs somebody, and from which record on.

use allstop_core::TaskId;
use allstop_log::Version;
use serde::{Deserialize, Serialize};

/// A wake-up for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WakeUp {
    /// The task.
    pub task: TaskId,
    /// Number of the record that it is about, which may not be there yet.
    pub version: u64,
}

impl WakeUp {
    pub(super) fn new(task: &TaskId, version: Version) -> Self {
        Self {
            task: task.clone(),
            version: version.0,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `None`: no wake-up of this program.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
