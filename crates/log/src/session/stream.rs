//! The one writer of a session.
//!
//! Invariants:
//! 1. Who has a [`SessionStream`] holds the session's lock, so recovery never touches a turn that somebody runs.
//! 2. The state is the fold of what is in the log, and of nothing else: a record is applied when it is durable. What lies
//!    before the last compaction is taken from the snapshot that its record carries, and not read.
//! 3. Records are checked against the state before they are written: the log never holds one that cannot follow.
//! 4. An append that was dropped or whose answer was lost is settled before the next one, under its first id.

use std::fmt;
use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{SessionId, Timestamp};

use super::append::encode_append;
use super::error::SessionError;
use super::fold::{SessionEnd, fold_end};
use super::living::living_owner;
use super::stream_of;
use crate::{
    AppendError, AppendId, AppendIds, LockAttempt, Log, RecordBytes, StreamLock, StreamName,
    Version,
};

/// How often an append whose answer was lost is repeated before the caller is told: once for the store's hiccup, and
/// twice more for a store that is coming back. A store that stays silent is the caller's to wait for, not ours.
const SETTLE_TRIES_MAX: u32 = 3;

/// Room in which an append is encoded that a session keeps: the records of most appends. One that took more gives it
/// back, so that ten thousand idle sessions stay small.
const SCRATCH_BYTES: usize = 1_024;

/// One session, open for writing under its lock.
#[must_use = "dropping it gives the session's lock back"]
pub struct SessionStream {
    log: Arc<dyn Log>,
    id: SessionId,
    stream: StreamName,
    lock: StreamLock,
    version: Version,
    state: SessionState,
    /// The last record that carries a snapshot.
    snapshot_at: Option<Version>,
    ids: AppendIds,
    scratch: Vec<u8>,
    unsettled: Option<Unsettled>,
    /// Of the last append, what the store has refused or has not been asked for.
    unwritten: Vec<SessionRecord>,
    recovered: Vec<SessionRecord>,
    observer: Option<RecordObserver>,
}

/// Hears of every record when it is durable, in order, with its number. Called by whoever appends: must not block.
pub type RecordObserver = Arc<dyn Fn(Version, &SessionRecord) + Send + Sync>;

/// An append that has been asked for and not answered.
#[derive(Debug)]
struct Unsettled {
    id: AppendId,
    encoded: Vec<RecordBytes>,
    records: Vec<SessionRecord>,
    /// Whether it was asked for before, so that it may be written: then a failure of the store no longer says that it
    /// is not.
    may_be_written: bool,
}

impl fmt::Debug for SessionStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStream")
            .field("id", &self.id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl SessionStream {
    /// Makes a session and takes its lock. `folder` is where it works.
    ///
    /// **Cancel safety**: dropping it may leave a session without a turn, which [`SessionStream::resume`] opens.
    ///
    /// # Errors
    /// [`SessionError::Exists`], [`SessionError::InUse`], or a failure of the store.
    pub async fn create(
        log: Arc<dyn Log>,
        id: SessionId,
        at: Timestamp,
        folder: impl Into<Arc<str>>,
    ) -> Result<Self, SessionError> {
        let mut session = Self::lock(log, id.clone()).await?;
        if session.version != Version(0) {
            return Err(SessionError::Exists(id));
        }
        let folder = folder.into();
        session
            .append(vec![SessionRecord::SessionOpened {
                session_id: id,
                at,
                folder,
            }])
            .await?;
        Ok(session)
    }

    /// Opens a session that is there and takes its lock. A turn that a crash left open is ended, as of `at`.
    ///
    /// **Cancel safety**: dropping it leaves the session as it was, or recovered.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::InUse`], a session that cannot be read, or a failure of the store.
    pub async fn resume(
        log: Arc<dyn Log>,
        id: SessionId,
        at: Timestamp,
    ) -> Result<Self, SessionError> {
        let mut session = Self::lock(log, id.clone()).await?;
        if session.version == Version(0) {
            return Err(SessionError::NotFound(id));
        }
        session.recovered = session.state.recovery_records(at);
        if !session.recovered.is_empty() {
            session.append(session.recovered.clone()).await?;
        }
        Ok(session)
    }

    async fn lock(log: Arc<dyn Log>, id: SessionId) -> Result<Self, SessionError> {
        let stream = stream_of(&id);
        let lock = match log.try_lock(&stream).await? {
            LockAttempt::Locked(lock) => lock,
            LockAttempt::HeldBy(owner) => return Err(SessionError::InUse { id, owner }),
        };
        // Read under the lock, so that nothing is appended between the fold and the recovery.
        let SessionEnd {
            state,
            version,
            snapshot_at,
        } = fold_end(&*log, &id).await?;
        if let Some(owner) = living_owner(&*log, &state, lock.is_first()).await? {
            let owner = Some(owner);
            return Err(SessionError::InUse { id, owner });
        }
        Ok(Self {
            log,
            id,
            stream,
            lock,
            version,
            state,
            snapshot_at,
            ids: AppendIds::new(),
            scratch: Vec::with_capacity(SCRATCH_BYTES),
            unsettled: None,
            unwritten: Vec::new(),
            recovered: Vec::new(),
            observer: None,
        })
    }

    /// Appends records as one, all or nothing, and applies them to the state when they are durable. None at all only
    /// settles what was asked for before. Where they begin with a turn, and the store has refused the ending of the one
    /// before, that is ended first, as after a crash.
    ///
    /// **Cancel safety**: a dropped append may have happened. The state then does not show it until the next append,
    /// or [`SessionStream::settle`], has finished it; it is never lost halfway and never written twice. Where it was
    /// dropped while an earlier one was settled, it has not happened, and [`SessionStream::take_unwritten`] has it.
    ///
    /// # Errors
    /// [`SessionError::Illegal`] before anything is written; [`SessionError::Fenced`] when another writer has appended;
    /// [`SessionError::Indeterminate`]; or a failure of the store.
    pub async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        self.unwritten = records;
        self.settle().await?;
        let mut records = std::mem::take(&mut self.unwritten);
        if let Some(SessionRecord::TurnStarted { at, .. }) = records.first() {
            let ending = self.state.recovery_records(*at);
            records.splice(..0, ending);
        }
        if records.is_empty() {
            return Ok(());
        }
        self.state.check(&records)?;
        let encoded = encode_append(
            &records,
            &self.state,
            (self.version, self.snapshot_at),
            &mut self.scratch,
        )?;
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_BYTES);
        self.unsettled = Some(Unsettled {
            id: self.ids.next_id(),
            encoded,
            records,
            may_be_written: false,
        });
        self.settle().await
    }

    /// Finishes an append that was dropped, or whose answer was lost. Does nothing if there is none.
    ///
    /// **Cancel safety**: as for [`SessionStream::append`].
    ///
    /// # Errors
    /// As for [`SessionStream::append`].
    pub async fn settle(&mut self) -> Result<(), SessionError> {
        for _ in 0..SETTLE_TRIES_MAX {
            let Some(unsettled) = &mut self.unsettled else {
                return Ok(());
            };
            // Noted before the answer, which nobody may wait for.
            let asked_before = std::mem::replace(&mut unsettled.may_be_written, true);
            let (id, encoded) = (unsettled.id, unsettled.encoded.clone());
            let answer = self
                .log
                .append(&self.stream, self.version, id, encoded)
                .await;
            match answer {
                Ok(version) => return self.publish(version),
                Err(AppendError::Indeterminate) => {}
                Err(AppendError::Log(_)) if asked_before => {}
                Err(AppendError::Conflict { actual }) => {
                    self.unsettled = None;
                    return Err(SessionError::Fenced { actual });
                }
                Err(AppendError::Log(error)) => {
                    let refused = self.unsettled.take();
                    self.unwritten = refused.map(|refused| refused.records).unwrap_or_default();
                    return Err(error.into());
                }
            }
        }
        Err(SessionError::Indeterminate)
    }

    /// Whether the store has answered all that it was asked for.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_none()
    }

    /// The records of the last append, if it is known that they are not written: the store has refused them, or was not
    /// asked. What they tell has happened all the same.
    pub fn take_unwritten(&mut self) -> Vec<SessionRecord> {
        std::mem::take(&mut self.unwritten)
    }

    fn publish(&mut self, version: Version) -> Result<(), SessionError> {
        let mut at = self.version;
        self.version = version;
        for record in self
            .unsettled
            .take()
            .into_iter()
            .flat_map(|done| done.records)
        {
            self.state.apply(&record)?;
            at = at.next();
            if let SessionRecord::Compacted { .. } = record {
                self.snapshot_at = Some(at);
            }
            if let Some(observe) = &self.observer {
                observe(at, &record);
            }
        }
        Ok(())
    }

    /// Tells this observer of every record that becomes durable from now on.
    pub fn observe(&mut self, observer: RecordObserver) {
        self.observer = Some(observer);
    }

    /// State by its records; of a session that was resumed, from the last compaction on.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Which session it is.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The number of its last record.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The log that it is in.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// What recovery wrote when the session was resumed: the endings of what a crash left open. Empty after a clean
    /// end.
    pub fn recovered(&self) -> &[SessionRecord] {
        &self.recovered
    }

    /// Deletes the session.
    ///
    /// **Cancel safety**: dropping it does not take the deletion back.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn delete(self) -> Result<(), SessionError> {
        Ok(self.log.delete(self.lock).await?)
    }
}
