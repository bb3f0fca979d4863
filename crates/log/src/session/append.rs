//! Encodes one append, and adds snapshots of the session's state. Later readers start at a snapshot instead of the
//! first record.

use std::collections::VecDeque;

use allstop_core::record::SessionRecord;
use allstop_core::turn::{IllegalRecord, SessionState};

use super::codec::{self, RecordExtras};
use crate::{RecordBytes, Version};

/// Encodes the records of one append. `state` is the state of the session before the append, `at` is the version of
/// that state, and `snapshot_at` is the number of the last record with a snapshot. The record of a compaction gets a
/// snapshot of the state after the compaction. The record of a turn's start gets the number of the last record with a
/// snapshot.
///
/// # Errors
/// Returns an error if the records are not allowed in this state.
pub(super) fn encode_append(
    records: &[SessionRecord],
    state: &SessionState,
    (mut at, mut snapshot_at): (Version, Option<Version>),
    scratch: &mut Vec<u8>,
) -> Result<Vec<RecordBytes>, IllegalRecord> {
    let is_compaction = |record: &SessionRecord| matches!(record, SessionRecord::Compacted { .. });
    let mut snapshots = VecDeque::new();
    if records.iter().any(is_compaction) {
        let mut state = state.clone();
        for record in records {
            state.apply(record)?;
            if is_compaction(record) {
                snapshots.push_back(state.snapshot());
            }
        }
    }
    let extras_of = |record: &SessionRecord| {
        at = at.next();
        let extras = match record {
            SessionRecord::Compacted { .. } => {
                snapshot_at = Some(at);
                let snapshot = snapshots.pop_front().flatten();
                snapshot.map(RecordExtras::snapshot)
            }
            SessionRecord::TurnStarted { .. } => snapshot_at.map(RecordExtras::snapshot_at),
            SessionRecord::SettingsChanged { .. }
            | SessionRecord::Stopped { .. }
            | SessionRecord::MessagesKept { .. } => Some(RecordExtras::optional()),
            _ => None,
        };
        extras.unwrap_or_default()
    };
    Ok(codec::encode_all(records, extras_of, scratch))
}

#[cfg(test)]
mod tests {
    use allstop_core::{SessionSettings, Timestamp};

    use super::*;

    /// A version of Allstop that does not support this record skips the record.
    #[test]
    fn settings_are_optional_for_older_readers() {
        let settings = SessionSettings::new(Some("m"), Some("http://x/v1"), "/f");
        let record = SessionRecord::SettingsChanged {
            at: Timestamp::from_unix_ms(0),
            settings: settings.into(),
        };
        let none = (Version(1), None);
        let records = std::slice::from_ref(&record);
        let encoded = encode_append(records, &SessionState::new(), none, &mut Vec::new()).unwrap();
        let text = std::str::from_utf8(&encoded[0]).unwrap();
        assert!(text.ends_with(r#""optional":true}"#), "{text}");
        assert_eq!(codec::decode(text.as_bytes()).unwrap(), Some(record));
        let unknown = text.replace("settings_changed", "of_a_later_version");
        assert_eq!(codec::decode(unknown.as_bytes()).unwrap(), None);
    }
}
