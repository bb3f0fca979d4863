//! Fields that the log adds to a record.
//!
//! The record of a compaction (a summary that replaces old messages) contains a snapshot of the session's state after
//! the compaction. The record of a turn's start contains the number of the record with the last snapshot, so that a
//! reader can start at this record. Older versions of Allstop ignore both fields and read from the first record. If
//! both fields are missing or unreadable, this version also reads from the first record.

use allstop_core::turn::SessionSnapshot;
use serde::{Deserialize, Serialize};

use crate::Version;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::session) struct RecordExtras {
    /// State after this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) snapshot: Option<Box<SessionSnapshot>>,
    /// Number of the last record with a snapshot before this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) snapshot_at: Option<u64>,
    /// True if a reader that does not know the type of the record may skip the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

impl RecordExtras {
    pub(in crate::session) fn snapshot(snapshot: SessionSnapshot) -> Self {
        Self {
            snapshot: Some(Box::new(snapshot)),
            ..Self::default()
        }
    }

    pub(in crate::session) fn snapshot_at(version: Version) -> Self {
        Self {
            snapshot_at: Some(version.0),
            ..Self::default()
        }
    }

    /// Fields of a record that older versions may skip.
    pub(in crate::session) fn optional() -> Self {
        Self {
            optional: true,
            ..Self::default()
        }
    }

    /// Adds the fields to the JSON object at the end of `record`.
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

    /// Reads the fields of a stored record; empty if they are unreadable.
    pub(in crate::session) fn of(record: &[u8]) -> Self {
        super::read(record).unwrap_or_default()
    }
}
