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
use crate::{LockAttempt, Log, LogError, StreamLock, StreamName, Version};

/// One entry in a list of sessions.
#[derive(Debug)]
pub struct SessionSummary {
    /// Id of the session.
    pub id: SessionId,
    /// Number of the last record of the session.
    pub version: Version,
    /// The process that has the session open; `None` if no process has it open.
    pub owner: Option<ProcessIdentity>,
    /// Time of the last activity. This is the start or end of a turn, or the opening of the session.
    pub active_at: Option<Timestamp>,
    /// Number of started turns.
    pub turns: usize,
    /// Reason why the last ended turn ended; `None` if no turn has ended yet.
    pub last_stop_reason: Option<StopReason>,
    /// True if a turn has no ending. If the session has an owner, this turn runs. Otherwise the next start ends the
    /// turn.
    pub turn_open: bool,
    /// Error that occurred while the end of the session was read. If there is an error, the number of turns is unknown.
    pub problem: Option<SessionError>,
}

/// A session that [`newest_sessions`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    /// Id of the session.
    pub id: SessionId,
    /// Number of the last record of the session.
    pub version: Version,
}

/// Lists the sessions of a log without reading them. The session with the newest record comes first. The order does not
/// depend on a clock.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the store fails.
pub async fn newest_sessions(log: &dyn Log) -> Result<Vec<ListedSession>, LogError> {
    let listed = log.list_newest_first(STREAM_PREFIX).await?.into_iter();
    let session = |(stream, version)| {
        Some(ListedSession {
            id: session_of(&stream)?,
            version,
        })
    };
    Ok(listed.filter_map(session).collect())
}

/// Reads [`SessionSummary`] for each session of a log, in the order of [`newest_sessions`].
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns an error if the store fails.
pub async fn list_sessions(log: &dyn Log) -> Result<Vec<SessionSummary>, LogError> {
    let mut sessions = Vec::new();
    for listed in newest_sessions(log).await? {
        sessions.push(SessionSummary::read(log, listed).await?);
    }
    Ok(sessions)
}

impl SessionSummary {
    /// Reads only the end of the session: at most back to the start of the last turn. If this turn is open, reads at
    /// most back to the ending of the previous turn. If the end is unreadable, the summary contains the error.
    ///
    /// **Cancel safety**: if the future is dropped, nothing changes.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn read(log: &dyn Log, listed: ListedSession) -> Result<Self, LogError> {
        let stream = stream_of(&listed.id);
        let mut summary = Self {
            owner: log.lock_owner(&stream).await?,
            id: listed.id,
            version: listed.version,
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
        Ok(summary)
    }

    /// Sets the fields that depend on the last start or end of a turn. The number of the last turn is also the count of
    /// turns.
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
                // The first turn has no turn before it, so there is no earlier ending.
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

/// Reads a session from its first record without opening it. Returns the state and the owner of the session.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns [`SessionError::NotFound`], an error for an unreadable session, or an error of the store.
pub async fn read_session(
    log: &dyn Log,
    id: &SessionId,
) -> Result<(SessionState, Option<ProcessIdentity>), SessionError> {
    // Read the owner first, and the records afterwards. A turn that still runs when the owner is read may have ended
    // when the records are read. In the other order, a turn could appear as open and without an owner although it has
    // ended.
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

/// Reads a session like [`read_session`], but only from the last compaction on. About earlier turns and earlier
/// background work, the state contains only the parts that later records depend on.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns the same errors as [`read_session`].
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

/// A session that is about to be deleted. No process has it open, and its lock is held. If this value is dropped, the
/// session stays.
#[derive(Debug)]
#[must_use]
pub struct SessionRemoval {
    lock: StreamLock,
}

impl SessionRemoval {
    /// Deletes the session.
    ///
    /// **Cancel safety**: if the future is dropped, the deletion is not undone.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn finish(self, log: &dyn Log) -> Result<(), SessionError> {
        Ok(log.delete(self.lock).await?)
    }
}

/// Deletes a session that no process has open.
///
/// **Cancel safety**: if the future is dropped, the deletion is not undone.
///
/// # Errors
/// Returns the errors of [`begin_removal`], or an error of the store.
pub async fn remove_session(log: &dyn Log, id: &SessionId) -> Result<(), SessionError> {
    begin_removal(log, id).await?.finish(log).await
}

/// Begins the deletion of a session: locks it. Files that belong to the session can be deleted before
/// [`SessionRemoval::finish`], so a crash in between leaves no file without a session.
///
/// **Cancel safety**: if the future is dropped, nothing changes.
///
/// # Errors
/// Returns [`SessionError::NotFound`], [`SessionError::InUse`], or an error of the store.
pub async fn begin_removal(log: &dyn Log, id: &SessionId) -> Result<SessionRemoval, SessionError> {
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
    Ok(SessionRemoval { lock })
}
