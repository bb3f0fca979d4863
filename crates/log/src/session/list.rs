//! Lists, reads and removes sessions without opening them.

use allstop_core::process::ProcessIdentity;
use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{SessionId, StopReason, Timestamp};

use super::backward_search::find_last;
use super::codec::RecordKind;
use super::error::SessionError;
use super::fold::{FoldedSession, decode, fold_all, fold_from_snapshot};
use super::running_owner::running_owner;
use super::{STREAM_PREFIX, session_of, stream_of};
use crate::{LockAttempt, Log, LogError, StreamName, Version};

/// One entry in a list of sessions.
#[derive(Debug)]
pub struct SessionSummary {
    /// Id of the session.
    pub id: SessionId,
    /// Number of its last record.
    pub version: Version,
    /// The process that has it open, if any.
    pub owner: Option<ProcessIdentity>,
    /// Time of the last activity: the start or end of a turn, or the opening.
    pub active_at: Option<Timestamp>,
    /// Number of started turns.
    pub turns: usize,
    /// Reason for the end of the last turn; `None` before the first end.
    pub last_stop_reason: Option<StopReason>,
    /// True if a turn has no ending: it runs if there is an owner, otherwise the next start ends it.
    pub turn_open: bool,
    /// Error of reading the session's end; the number of turns is then unknown.
    pub problem: Option<SessionError>,
}

/// Lists the sessions of a log by id. Reads only the end of each session: at most back to the start of its last turn
/// or, if that turn is open, to the ending of the previous one. If the end is unreadable, the entry has the error.
///
/// **Cancel safety**: dropping it has no effect.
///
/// # Errors
/// Returns an error if the store fails.
pub async fn list_sessions(log: &dyn Log) -> Result<Vec<SessionSummary>, LogError> {
    let mut sessions = Vec::new();
    for (stream, version) in log.list(STREAM_PREFIX).await? {
        let Some(id) = session_of(&stream) else {
            continue;
        };
        let owner = log.lock_owner(&stream).await?;
        let mut summary = SessionSummary {
            id,
            version,
            owner,
            active_at: None,
            turns: 0,
            last_stop_reason: None,
            turn_open: false,
            problem: None,
        };
        match summary.read_end(log, &stream).await {
            Ok(()) => {}
            Err(SessionError::Log(error)) => return Err(error),
            Err(problem) => summary.problem = Some(problem),
        }
        sessions.push(summary);
    }
    Ok(sessions)
}

impl SessionSummary {
    /// Fills in the fields from the last start or end of a turn. The number of the last turn is the count of turns.
    async fn read_end(&mut self, log: &dyn Log, stream: &StreamName) -> Result<(), SessionError> {
        use RecordKind::{SessionOpened, TurnCommitted, TurnStarted, TurnStopped};
        let kinds = [SessionOpened, TurnStarted, TurnCommitted, TurnStopped];
        let last = find_last(log, stream, self.version, &kinds).await?;
        let Some((version, last)) = last else {
            return Ok(());
        };
        match decode(&self.id, version, &last)? {
            Some(SessionRecord::SessionOpened { at, .. }) => self.active_at = Some(at),
            Some(SessionRecord::TurnStarted {
                turn, at, owner, ..
            }) => {
                if let (None, Some(owner)) = (&self.owner, owner)
                    && log.is_other_process_running(&owner).await?
                {
                    self.owner = Some(owner);
                }
                self.turns = turn.0 as usize;
                self.active_at = Some(at);
                self.turn_open = true;
                let before = Version(version.0 - 1);
                // The first turn has no earlier ending.
                if turn.0 > 1 {
                    let kinds = [TurnCommitted, TurnStopped];
                    let ending = find_last(log, stream, before, &kinds).await?;
                    if let Some((version, ending)) = ending {
                        let ending = decode(&self.id, version, &ending)?;
                        self.last_stop_reason = ending.as_ref().and_then(stop_reason);
                    }
                }
            }
            Some(
                ending @ (SessionRecord::TurnCommitted { turn, at, .. }
                | SessionRecord::TurnStopped { turn, at, .. }),
            ) => {
                self.turns = turn.0 as usize;
                self.active_at = Some(at);
                self.last_stop_reason = stop_reason(&ending);
            }
            _ => {}
        }
        Ok(())
    }
}

fn stop_reason(ending: &SessionRecord) -> Option<StopReason> {
    match ending {
        SessionRecord::TurnCommitted { .. } => Some(StopReason::Completed),
        SessionRecord::TurnStopped { reason, .. } => Some(*reason),
        _ => None,
    }
}

/// Reads a session from its first record, without opening it. Returns its state and its owner.
///
/// **Cancel safety**: dropping it has no effect.
///
/// # Errors
/// [`SessionError::NotFound`], an unreadable session, or a failure of the store.
pub async fn read_session(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Option<ProcessIdentity>), SessionError> {
    // Read the owner first: a turn that is open in the later read may have ended since, but a turn that has ended
    // cannot be open again.
    let owner = log.lock_owner(&stream_of(id)).await?;
    match fold_all(log, id).await? {
        (_, Version(0)) => Err(SessionError::NotFound(id.clone())),
        (state, _) => with_owner(log, state, owner).await,
    }
}

async fn with_owner(
    log: &dyn Log,
    state: SessionState,
    locked_by: Option<ProcessIdentity>,
) -> Result<(SessionState, Option<ProcessIdentity>), SessionError> {
    let owner = match locked_by {
        Some(owner) => Some(owner),
        None => running_owner(log, &state, false).await?,
    };
    Ok((state, owner))
}

/// Reads a session like [`read_session`], but from its last compaction: of earlier turns and background work, the
/// state has only the parts that later records depend on.
///
/// **Cancel safety**: dropping it has no effect.
///
/// # Errors
/// As for [`read_session`].
pub async fn read_session_end(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Option<ProcessIdentity>), SessionError> {
    let owner = log.lock_owner(&stream_of(id)).await?;
    match fold_from_snapshot(log, id).await? {
        FoldedSession {
            version: Version(0),
            ..
        } => Err(SessionError::NotFound(id.clone())),
        FoldedSession { state, .. } => with_owner(log, state, owner).await,
    }
}

/// Deletes a session that no process has open.
///
/// **Cancel safety**: dropping it does not undo the deletion.
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
    match fold_from_snapshot(log, id).await {
        Ok(FoldedSession {
            version: Version(0),
            ..
        }) => return Err(SessionError::NotFound(id.clone())),
        Ok(end) => {
            if let Some(owner) = running_owner(log, &end.state, lock.is_first()).await? {
                let (id, owner) = (id.clone(), Some(owner));
                return Err(SessionError::InUse { id, owner });
            }
        }
        Err(SessionError::Log(error)) => return Err(error.into()),
        // An unreadable session can still be removed.
        Err(_) => {}
    }
    Ok(log.delete(lock).await?)
}
