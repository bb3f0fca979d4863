//! The single writer of a session.
//!
//! Invariants:
//! 1. The owner of a [`SessionWriter`] holds the session's lock, so the recovery after a crash never touches a turn
//!    that runs.
//! 2. The state is a fold: the result of applying the log's records in their order. A record is applied to the state
//!    when it is durable. The part of the state before the last compaction comes from the snapshot in the record of
//!    this compaction.
//! 3. Records are checked against the state before they are written, so the log never contains an illegal record.
//! 4. If an append was dropped or its answer was lost, it is first settled: it is sent again with its id until the
//!    result is known. Only then is the next append sent.

use std::fmt;
use std::sync::Arc;

use allstop_core::record::SessionRecord;
use allstop_core::turn::SessionState;
use allstop_core::{SessionId, SessionSettings, Timestamp};

use super::append::encode_append;
use super::error::SessionError;
use super::fold::{FoldedSession, fold_from_snapshot};
use super::running_owner::running_owner;
use super::stream_of;
use crate::{
    AppendError, AppendId, AppendIds, LockAttempt, Log, RecordBytes, StreamLock, StreamName,
    Version,
};

/// Maximum number of attempts of an append in one call. The second attempt is for a short failure of the store, and the
/// third attempt for a restart of the store. If the store does not answer, the caller decides whether to wait longer.
const SETTLE_TRIES_MAX: u32 = 3;

/// Number of bytes of the encoding buffer that an idle session keeps. This is enough for most appends. A larger buffer
/// is freed after the append, so that ten thousand idle sessions need little memory.
const SCRATCH_BYTES: usize = 1_024;

/// A session that is open for writing. The writer holds the lock of the session.
#[must_use = "dropping it releases the session's lock"]
pub struct SessionWriter {
    log: Arc<dyn Log>,
    id: SessionId,
    stream: StreamName,
    lock: StreamLock,
    version: Version,
    state: SessionState,
    /// Number of the last record with a snapshot.
    snapshot_at: Option<Version>,
    ids: AppendIds,
    scratch: Vec<u8>,
    pending: Option<PendingAppend>,
    /// Records of the last append, if the store refused them or if they were not sent.
    refused: Vec<SessionRecord>,
    recovered: Vec<SessionRecord>,
    observer: Option<RecordObserver>,
}

/// Observer that the appending task calls with each record and the number of the record. The calls are in order, and
/// come after the record is durable. The observer must not block.
pub type RecordObserver = Arc<dyn Fn(Version, &SessionRecord) + Send + Sync>;

/// An append that was sent but not answered.
#[derive(Debug)]
struct PendingAppend {
    id: AppendId,
    encoded: Vec<RecordBytes>,
    records: Vec<SessionRecord>,
    /// True if the append was already sent once, so that the store may have written it. In this case a store error no
    /// longer proves that the append is not written.
    may_be_written: bool,
}

impl fmt::Debug for SessionWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionWriter")
            .field("id", &self.id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl SessionWriter {
    /// Creates a session, takes the lock of the session, and records the settings. `folder` is the working folder of
    /// the session.
    ///
    /// **Cancel safety**: if the future is dropped, a session without turns may remain. [`SessionWriter::resume`] can
    /// open it.
    ///
    /// # Errors
    /// Returns [`SessionError::Exists`], [`SessionError::InUse`], or an error of the store.
    pub async fn create(
        log: Arc<dyn Log>,
        id: SessionId,
        at: Timestamp,
        folder: impl Into<Arc<str>>,
        settings: Option<Arc<SessionSettings>>,
    ) -> Result<Self, SessionError> {
        let mut session = Self::lock(log, id.clone()).await?;
        if session.version != Version(0) {
            return Err(SessionError::Exists(id));
        }
        let folder = folder.into();
        let mut records = vec![SessionRecord::SessionOpened {
            session_id: id,
            at,
            folder,
        }];
        let settings = settings.into_iter();
        records.extend(settings.map(|settings| SessionRecord::SettingsChanged { at, settings }));
        session.append(records).await?;
        Ok(session)
    }

    /// Records the settings with which the session is opened, if they are different from the settings of the last
    /// opening.
    ///
    /// **Cancel safety**: the same as for [`SessionWriter::append`].
    ///
    /// # Errors
    /// Returns the same errors as [`SessionWriter::append`].
    pub async fn change_settings(
        &mut self,
        settings: Arc<SessionSettings>,
        at: Timestamp,
    ) -> Result<(), SessionError> {
        if self.state.settings() == Some(&settings) {
            return Ok(());
        }
        let changed = SessionRecord::SettingsChanged { at, settings };
        self.append(vec![changed]).await
    }

    /// Opens an existing session and takes the lock of the session. If a crash left a turn open, this turn ends at the
    /// time `at`.
    ///
    /// **Cancel safety**: if the future is dropped, the session is either unchanged or recovered.
    ///
    /// # Errors
    /// Returns [`SessionError::NotFound`], [`SessionError::InUse`], an error for an unreadable session, or an error of
    /// the store.
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
        // The session is read while the lock is held, so that no append can come between the fold and the recovery.
        let FoldedSession {
            state,
            version,
            snapshot_at,
        } = fold_from_snapshot(&*log, &id).await?;
        if let Some(owner) = running_owner(&*log, &state, lock.is_first()).await? {
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
            pending: None,
            refused: Vec::new(),
            recovered: Vec::new(),
            observer: None,
        })
    }

    /// Appends records together, completely or not at all, and applies the records to the state when they are durable.
    /// If the list is empty, this method only settles the previous append. If the records begin a turn, and the store
    /// has refused the ending of the previous turn, this method first ends the previous turn as after a crash.
    ///
    /// **Cancel safety**: if the future is dropped, the append may have happened. The state contains the records only
    /// after the next append or [`SessionWriter::settle`] has settled the dropped append. A dropped append is never
    /// written partly or twice. If the future was dropped while a previous append was being settled, the new append has
    /// not happened: see [`SessionWriter::take_refused_records`].
    ///
    /// # Errors
    /// Returns [`SessionError::Illegal`] before anything is written, [`SessionError::Fenced`] if another writer has
    /// appended, [`SessionError::Indeterminate`], or an error of the store.
    pub async fn append(&mut self, records: Vec<SessionRecord>) -> Result<(), SessionError> {
        self.refused = records;
        self.settle().await?;
        let mut records = std::mem::take(&mut self.refused);
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
        self.pending = Some(PendingAppend {
            id: self.ids.next_id(),
            encoded,
            records,
            may_be_written: false,
        });
        self.settle().await
    }

    /// Settles an append that was dropped or whose answer was lost. Does nothing if there is no such append.
    ///
    /// **Cancel safety**: the same as for [`SessionWriter::append`].
    ///
    /// # Errors
    /// Returns the same errors as [`SessionWriter::append`].
    pub async fn settle(&mut self) -> Result<(), SessionError> {
        for _ in 0..SETTLE_TRIES_MAX {
            let Some(pending) = &mut self.pending else {
                return Ok(());
            };
            // Set this before the answer arrives, because the caller may stop waiting for the answer.
            let asked_before = std::mem::replace(&mut pending.may_be_written, true);
            let (id, encoded) = (pending.id, pending.encoded.clone());
            let answer = self
                .log
                .append(&self.stream, self.version, id, encoded)
                .await;
            match answer {
                Ok(version) => return self.publish(version),
                Err(AppendError::Indeterminate) => {}
                Err(AppendError::Log(_)) if asked_before => {}
                Err(AppendError::Conflict { actual }) => {
                    self.pending = None;
                    return Err(SessionError::Fenced { actual });
                }
                Err(AppendError::Log(error)) => {
                    let refused = self.pending.take();
                    self.refused = refused.map(|refused| refused.records).unwrap_or_default();
                    return Err(error.into());
                }
            }
        }
        Err(SessionError::Indeterminate)
    }

    /// True if the store has answered every append.
    pub fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// Returns the records of the last append if it is known that they are not written: the store refused them, or they
    /// were not sent to the store. The events that these records describe have still happened.
    pub fn take_refused_records(&mut self) -> Vec<SessionRecord> {
        std::mem::take(&mut self.refused)
    }

    fn publish(&mut self, version: Version) -> Result<(), SessionError> {
        let mut at = self.version;
        self.version = version;
        for record in self
            .pending
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

    /// Calls this observer for every record that becomes durable from now on.
    pub fn observe(&mut self, observer: RecordObserver) {
        self.observer = Some(observer);
    }

    /// State of the session. In a resumed session, the state contains the details of turns only from the last
    /// compaction on.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Number of the last record of the session.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The session's log.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Records that the recovery in `resume` has added: the endings of open calls and turns. Empty if the session had
    /// no open turn.
    pub fn recovered(&self) -> &[SessionRecord] {
        &self.recovered
    }

    /// Deletes the session.
    ///
    /// **Cancel safety**: if the future is dropped, the deletion is not undone.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn delete(self) -> Result<(), SessionError> {
        Ok(self.log.delete(self.lock).await?)
    }
}
