//! Wake-ups: which task needs somebody, and from which record on.

use std::time::Duration;

use allstop_core::{TaskId, Timestamp};
use allstop_log::Version;
use serde::{Deserialize, Serialize};

/// A wake-up for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WakeUp {
    /// The task.
    pub task: TaskId,
    /// Number of the record that it is about, which may not be there yet.
    pub version: u64,
    /// Time at which it was sent, on the sender's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
}

/// Time after which a record that is not there never comes: much longer than any write that was sent before takes to
/// arrive, and than clocks differ.
const RECORD_MAX: Duration = Duration::from_hours(2);

impl WakeUp {
    pub(super) fn new(task: &TaskId, version: Version, sent_at: Timestamp) -> Self {
        Self {
            task: task.clone(),
            version: version.0,
            sent_at: Some(sent_at),
        }
    }

    /// True if its record is still to be waited for. The number of deliveries says little: busy workers give it back.
    pub(super) fn awaits_record(&self, now: Timestamp) -> bool {
        let age_max = i64::try_from(RECORD_MAX.as_millis()).unwrap_or(i64::MAX);
        self.sent_at
            .is_some_and(|sent_at| now.unix_ms().saturating_sub(sent_at.unix_ms()) < age_max)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `None`: no wake-up of this program.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
