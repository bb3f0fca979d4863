//! Backward search in the stream of a session.

use allstop_core::turn::SessionState;

use super::codec::{self, RecordExtras, RecordKind};
use crate::{Log, LogError, RecordBytes, StreamName, Version};

/// Number of records in the first part of the search. This part usually contains the end of the last turn.
const FIRST_PART_LEN: u64 = 16;

/// Factor by which each further part is longer than the previous one. Each read starts at the end of the stream again.
/// If all parts had the same length, the cost of a long search would therefore grow quadratically.
const PART_GROWTH: u64 = 8;

/// Finds the last record, up to number `end`, whose kind is one of these kinds or unknown.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the store fails.
pub(super) async fn find_last(
    log: &dyn Log,
    stream: &StreamName,
    mut end: Version,
    kinds: &[RecordKind],
) -> Result<Option<(Version, RecordBytes)>, LogError> {
    let mut len = FIRST_PART_LEN;
    while end > Version(0) {
        let first = Version((end.0 + 1).saturating_sub(len).max(1));
        let (mut from, mut found) = (first, None);
        while from <= end {
            let limit = usize::try_from(end.0 - from.0 + 1).unwrap_or(usize::MAX);
            let records = log.read(stream, from, limit).await?;
            let Some((last, _)) = records.last() else {
                // The stream was deleted during the search.
                return Ok(None);
            };
            from = last.next();
            let is_wanted =
                |bytes: &[u8]| RecordKind::of(bytes).is_none_or(|kind| kinds.contains(&kind));
            let of_part = records
                .into_iter()
                .rev()
                .find(|(_, bytes)| is_wanted(bytes));
            found = of_part.or(found);
        }
        if found.is_some() {
            return Ok(found);
        }
        (end, len) = (Version(first.0 - 1), len.saturating_mul(PART_GROWTH));
    }
    Ok(None)
}

/// The state in the last snapshot, and the number of the record with this snapshot. A snapshot is the state of the
/// session after a compaction, stored in the record of the compaction. If there is no snapshot: the empty state and 0.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the store fails.
pub(super) async fn last_snapshot(
    log: &dyn Log,
    stream: &StreamName,
) -> Result<(SessionState, Version), LogError> {
    let listed = log.list(stream.as_str()).await?;
    let end = listed.into_iter().find(|(name, _)| name == stream);
    let end = end.map_or(Version(0), |(_, version)| version);
    let kinds = [RecordKind::TurnStarted, RecordKind::Compacted];
    let Some((mut at, mut bytes)) = find_last(log, stream, end, &kinds).await? else {
        return Ok(Default::default());
    };
    if let Some(earlier) = RecordExtras::of(&bytes).snapshot_at {
        let read = log.read(stream, Version(earlier), 1).await?;
        let Some(record) = read.into_iter().next() else {
            return Ok(Default::default());
        };
        (at, bytes) = record;
    }
    // The record may be in a format that this version cannot read.
    let is_readable = codec::decode(&bytes).is_ok_and(|record| record.is_some());
    let snapshot = RecordExtras::of(&bytes).snapshot;
    Ok(snapshot
        .filter(|_| is_readable)
        .map_or_else(Default::default, |snapshot| {
            (SessionState::from(*snapshot), at)
        }))
}
