//! Records of the log stream `push/<task id>`, and the state that is computed from the records: the webhook
//! configurations of a task, with the progress of each delivery.

use std::collections::BTreeMap;
use std::sync::Arc;

use allstop_log::{RecordBytes, Version};
use serde::{Deserialize, Serialize};

use super::config::PushConfig;

/// Format version of the records that this code writes. Increase this number if an old reader would misinterpret a new
/// record, but not for optional fields.
const FORMAT: u32 = 1;

/// Record of a change to the configurations of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum PushRecord {
    /// A configuration was created or replaced.
    ConfigSet {
        config: Arc<PushConfig>,
        /// Event number after which the deliveries for this configuration begin.
        behind: Version,
    },
    /// A configuration was deleted.
    ConfigDeleted { id: Arc<str> },
    /// Every event up to this number is delivered.
    Delivered {
        id: Arc<str>,
        up_to: Version,
        /// True if no event follows.
        is_last: bool,
    },
    /// The receiver failed for too long.
    DeliveryPaused { id: Arc<str>, error: String },
}

/// Reason why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushRecordError {
    #[error("the record has format {0}; this version reads format 1")]
    Newer(u32),
    /// Omits the parser's error, because its text could contain a secret.
    #[error("the record is invalid")]
    Malformed,
}

#[derive(Serialize)]
struct StoredPushRecord<'a> {
    v: u32,
    #[serde(flatten)]
    record: &'a PushRecord,
}

#[derive(Deserialize)]
struct StoredPushFormat {
    v: u32,
}

impl PushRecord {
    pub(crate) fn encode(&self) -> RecordBytes {
        let stored = StoredPushRecord {
            v: FORMAT,
            record: self,
        };
        serde_json::to_vec(&stored)
            .expect("a record is plain data with text keys")
            .into()
    }

    /// Reads a stored record.
    ///
    /// # Errors
    /// Returns an error if a newer version wrote the record, or if the record is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PushRecordError> {
        serde_json::from_slice(bytes).map_err(|_| match serde_json::from_slice(bytes) {
            Ok(StoredPushFormat { v }) if v > FORMAT => PushRecordError::Newer(v),
            _ => PushRecordError::Malformed,
        })
    }
}

/// Configurations of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskPushConfigs {
    /// Number of the last record.
    pub(crate) version: Version,
    pub(crate) configs: BTreeMap<Arc<str>, ConfigProgress>,
}

/// Configuration and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigProgress {
    pub(crate) config: Arc<PushConfig>,
    /// Number of the record that set this configuration. A later configuration with an equal id has another number.
    pub(crate) set_at: Version,
    /// Number of the last delivered event.
    pub(crate) delivered: Version,
    pub(crate) phase: DeliveryPhase,
}

/// Phase of the deliveries of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryPhase {
    /// More events follow.
    Active,
    /// The last event of the task is delivered.
    Finished,
    /// The receiver failed for too long. Setting the configuration again resumes the deliveries.
    Paused,
}

impl TaskPushConfigs {
    /// Applies the next record. A record for a deleted configuration has no effect, because the deletion came first.
    pub(crate) fn apply(&mut self, record: &PushRecord) {
        self.version = self.version.next();
        match record {
            PushRecord::ConfigSet { config, behind } => {
                let progress = ConfigProgress {
                    config: Arc::clone(config),
                    set_at: self.version,
                    delivered: *behind,
                    phase: DeliveryPhase::Active,
                };
                self.configs.insert(Arc::clone(&config.id), progress);
            }
            PushRecord::ConfigDeleted { id } => {
                self.configs.remove(id);
            }
            PushRecord::Delivered { id, up_to, is_last } => {
                if let Some(progress) = self.configs.get_mut(id) {
                    progress.delivered = progress.delivered.max(*up_to);
                    if *is_last {
                        progress.phase = DeliveryPhase::Finished;
                    }
                }
            }
            PushRecord::DeliveryPaused { id, .. } => {
                if let Some(progress) = self.configs.get_mut(id) {
                    progress.phase = DeliveryPhase::Paused;
                }
            }
        }
    }
}
