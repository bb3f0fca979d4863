//! Wake-ups. Each wake-up contains the id of a task that needs a worker, and the number of the record that the wake-up
//! announces.

use std::time::Duration;

use allstop_core::{TaskId, Timestamp};
use allstop_log::Version;
use serde::{Deserialize, Serialize};

/// A wake-up for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WakeUp {
    /// The task.
    pub task: TaskId,
    /// Number of the announced record. The record may not be stored yet.
    pub version: u64,
    /// Time at which the wake-up was sent, on the clock of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
}

/// Time after which an announced record can no longer arrive. This time is much longer than the delay of a write plus
/// the difference between two clocks.
const RECORD_MAX: Duration = Duration::from_hours(2);

impl WakeUp {
    pub(super) fn new(task: &TaskId, version: Version, sent_at: Timestamp) -> Self {
        Self {
            task: task.clone(),
            version: version.0,
            sent_at: Some(sent_at),
        }
    }

    /// True if the announced record may still arrive. The number of deliveries alone does not show this: busy workers
    /// return wake-ups, and each return leads to another delivery.
    pub(super) fn awaits_record(&self, now: Timestamp) -> bool {
        let age_max = i64::try_from(RECORD_MAX.as_millis()).unwrap_or(i64::MAX);
        self.sent_at
            .is_some_and(|sent_at| now.unix_ms().saturating_sub(sent_at.unix_ms()) < age_max)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a wake-up. `None` if the bytes are not a wake-up of this program.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
