//! Fields that the log adds to a record, beside those of the record itself.
//!
//! A compaction carries the state behind it, and the start of a turn says which record the last such state is in. So a
//! reader begins there. Older versions skip both, and read from the first record; so does this one where they are
//! missing or unreadable.

use allstop_core::turn::SessionSnapshot;
use serde::{Deserialize, Serialize};

use crate::Version;

/// The added fields of one record.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::session) struct RecordExtras {
    /// State behind this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) snapshot: Option<Box<SessionSnapshot>>,
    /// Number of the last record before this one that has a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) snapshot_at: Option<u64>,
}

impl RecordExtras {
    pub(in crate::session) fn snapshot(snapshot: SessionSnapshot) -> Self {
        Self {
            snapshot: Some(Box::new(snapshot)),
            snapshot_at: None,
        }
    }

    pub(in crate::session) fn snapshot_at(version: Version) -> Self {
        Self {
            snapshot: None,
            snapshot_at: Some(version.0),
        }
    }

    /// Writes them into the object that `record` ends with.
    pub(super) fn add_to(&self, record: &mut Vec<u8>) {
        if *self == Self::default() {
            return;
        }
        record.pop();
        let comma_at = record.len();
        serde_json::to_writer(&mut *record, self)
            .expect("a snapshot is plain data with text keys, and a buffer in memory takes it");
        if let Some(bracket) = record.get_mut(comma_at) {
            *bracket = b',';
        }
    }

    /// Those of a stored record; none if they cannot be read.
    pub(in crate::session) fn of(record: &[u8]) -> Self {
        super::read(record).unwrap_or_default()
    }
}
