//! The end of a session's stream, read backwards as far as needed.

use allstop_core::turn::SessionState;

use super::codec::{self, RecordExtras, RecordKind};
use crate::{Log, LogError, RecordBytes, StreamName, Version};

/// Records that are read first: mostly the last turn's ending is among them.
const FIRST_PART_LEN: u64 = 16;

/// Growth of each further part. The way to a part starts at the end of the stream again, so parts of one
/// length would make long searches quadratic.
const PART_GROWTH: u64 = 8;

/// The last record up to number `end` that is of one of these kinds, or of which the kind cannot be told.
///
/// **Cancel safety**: dropping it leaves nothing behind.
///
/// # Errors
/// If the store fails.
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
                // It was deleted meanwhile.
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

/// State that a reader can begin with, and the number of the record that it is the state behind: the empty state before
/// the first record, where there is no later one.
///
/// **Cancel safety**: dropping it leaves nothing behind.
///
/// # Errors
/// If the store fails.
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
    // Whatever else it carries, it is one that this version can read.
    let is_readable = codec::decode(&bytes).is_ok_and(|record| record.is_some());
    let snapshot = RecordExtras::of(&bytes).snapshot;
    Ok(snapshot
        .filter(|_| is_readable)
        .map_or_else(Default::default, |snapshot| {
            (SessionState::from(*snapshot), at)
        }))
}
