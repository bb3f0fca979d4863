//! State of a session: a fold, which applies the session's records in their order.

use allstop_core::SessionId;
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;

use super::backward_search::last_snapshot;
use super::error::SessionError;
use super::{codec, stream_of};
use crate::{Log, Version};

/// A session that was read from its last snapshot to its end.
#[derive(Debug)]
pub(super) struct FoldedSession {
    pub(super) state: SessionState,
    pub(super) version: Version,
    /// The number of the record with the last snapshot, if there is a snapshot.
    pub(super) snapshot_at: Option<Version>,
}

/// Folds a session from its last snapshot. For an unknown session, returns the empty state at version 0.
pub(super) async fn fold_from_snapshot(
    log: &dyn Log,
    id: &SessionId,
) -> Result<FoldedSession, SessionError> {
    let (state, at) = last_snapshot(log, &stream_of(id)).await?;
    let (state, version) = fold(log, id, state, at).await?;
    Ok(FoldedSession {
        state,
        version,
        snapshot_at: (at > Version(0)).then_some(at),
    })
}

/// Folds a session from its first record.
pub(super) async fn fold_all(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Version), SessionError> {
    fold(log, id, SessionState::default(), Version(0)).await
}

/// Applies the records after number `last` to `state`. `state` is the state at version `last`.
async fn fold(
    log: &dyn Log,
    id: &SessionId,
    mut state: SessionState,
    mut last: Version,
) -> Result<(SessionState, Version), SessionError> {
    let apply = |version, record: &SessionRecord| {
        let applied = state.apply(record);
        applied.map_err(|source| SessionError::Inconsistent {
            id: id.clone(),
            version,
            source,
        })
    };
    last = each_record(log, id, last, apply).await?;
    Ok((state, last))
}

/// Reads the records after number `last`, in order. Returns the number of the last record.
async fn each_record(
    log: &dyn Log,
    id: &SessionId,
    mut last: Version,
    mut visit: impl FnMut(Version, &SessionRecord) -> Result<(), SessionError>,
) -> Result<Version, SessionError> {
    let stream = stream_of(id);
    loop {
        // No limit is needed, because the store limits the memory of a read.
        let records = log.read(&stream, last.next(), usize::MAX).await?;
        if records.is_empty() {
            return Ok(last);
        }
        for (version, bytes) in records {
            last = version;
            if let Some(record) = decode(id, version, &bytes)? {
                visit(version, &record)?;
            }
        }
    }
}

/// Reads all records of a session in order, without opening it.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// If a record cannot be read, or if the store fails.
pub async fn visit_records(
    log: &dyn Log,
    id: &SessionId,
    mut visit: impl FnMut(&SessionRecord),
) -> Result<(), SessionError> {
    let visit = |_, record: &SessionRecord| {
        visit(record);
        Ok(())
    };
    each_record(log, id, Version(0), visit).await?;
    Ok(())
}

pub(super) fn decode(
    id: &SessionId,
    version: Version,
    bytes: &[u8],
) -> Result<Option<SessionRecord>, SessionError> {
    codec::decode(bytes).map_err(|source| SessionError::Unreadable {
        id: id.clone(),
        version,
        source,
    })
}
