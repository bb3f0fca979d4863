//! Sessions seen from outside: listed, read and removed without being opened.

use allstop_core::process::ProcessIdentity;
use allstop_core::turn::SessionState;
use allstop_core::{SessionId, StopReason, Timestamp};

use super::error::SessionError;
use super::{STREAM_PREFIX, codec, session_of, stream_of};
use crate::{LockAttempt, Log, LogError, Version};

/// One line of a list of sessions.
#[derive(Debug)]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// The number of its last record.
    pub version: Version,
    /// Who has it open, if anybody has.
    pub owner: Option<ProcessIdentity>,
    /// When something last happened in it: a turn started or ended, or it was opened.
    pub active_at: Option<Timestamp>,
    /// How many turns have started.
    pub turns: usize,
    /// How the last turn ended; `None` before the first ending.
    pub last_stop_reason: Option<StopReason>,
    /// Whether a turn has no ending: it runs if there is an owner, else the next start ends it.
    pub turn_open: bool,
    /// Why it cannot be read, if it cannot; then the turns are not known.
    pub problem: Option<SessionError>,
}

/// The sessions of a log, by id. One that cannot be read is listed with its problem.
///
/// **Cancel safety**: dropping it leaves nothing behind.
///
/// # Errors
/// If the store fails.
pub async fn list_sessions(log: &dyn Log) -> Result<Vec<SessionSummary>, LogError> {
    let mut sessions = Vec::new();
    for (stream, version) in log.list(STREAM_PREFIX).await? {
        let Some(id) = session_of(&stream) else {
            continue;
        };
        let owner = log.lock_owner(&stream).await?;
        let (state, problem) = match fold(log, &id).await {
            Ok((state, _)) => (state, None),
            Err(SessionError::Log(error)) => return Err(error),
            Err(problem) => (SessionState::default(), Some(problem)),
        };
        sessions.push(SessionSummary {
            version,
            owner,
            active_at: last_activity(&state),
            turns: state.turns().len(),
            last_stop_reason: state
                .turns()
                .iter()
                .rev()
                .find_map(|t| t.ending.as_ref())
                .map(|e| e.reason),
            turn_open: state.open_turn().is_some(),
            problem,
            id,
        });
    }
    Ok(sessions)
}

fn last_activity(state: &SessionState) -> Option<Timestamp> {
    let last = state.turns().last();
    let last = last.map(|turn| turn.ending.as_ref().map_or(turn.started_at, |e| e.at));
    last.or(state.opened_at())
}

/// Reads a session without opening it, and says who has it open.
///
/// **Cancel safety**: dropping it leaves nothing behind.
///
/// # Errors
/// [`SessionError::NotFound`], a session that cannot be read, or a failure of the store.
pub async fn read_session(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Option<ProcessIdentity>), SessionError> {
    // The owner first: a turn that is open in what is read after it may have ended meanwhile, never the reverse.
    let owner = log.lock_owner(&stream_of(id)).await?;
    match fold(log, id).await? {
        (_, Version(0)) => Err(SessionError::NotFound(id.clone())),
        (state, _) => Ok((state, owner)),
    }
}

/// Deletes a session that nobody has open.
///
/// **Cancel safety**: dropping it does not take the deletion back.
///
/// # Errors
/// [`SessionError::NotFound`], [`SessionError::InUse`], or a failure of the store.
pub async fn remove_session(log: &dyn Log, id: &SessionId) -> Result<(), SessionError> {
    let stream = stream_of(id);
    let lock = match log.try_lock(&stream).await? {
        LockAttempt::Locked(lock) => lock,
        LockAttempt::HeldBy(owner) => {
            return Err(SessionError::InUse {
                id: id.clone(),
                owner,
            });
        }
    };
    if log.read(&stream, Version(1), 1).await?.is_empty() {
        return Err(SessionError::NotFound(id.clone()));
    }
    Ok(log.delete(lock).await?)
}

/// Folds all records of a session; an unknown session is the empty state at version 0.
pub(super) async fn fold(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Version), SessionError> {
    let stream = stream_of(id);
    let (mut state, mut last) = (SessionState::default(), Version(0));
    loop {
        // The store bounds its memory by itself.
        let records = log.read(&stream, last.next(), usize::MAX).await?;
        if records.is_empty() {
            return Ok((state, last));
        }
        for (version, bytes) in records {
            last = version;
            let record = codec::decode(&bytes).map_err(|source| SessionError::Unreadable {
                id: id.clone(),
                version,
                source,
            })?;
            if let Some(record) = record {
                state
                    .apply(&record)
                    .map_err(|source| SessionError::Inconsistent {
                        id: id.clone(),
                        version,
                        source,
                    })?;
            }
        }
    }
}
