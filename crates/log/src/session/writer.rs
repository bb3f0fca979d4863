//! The single writer of a session.
//!
//! Invariants:
//! 1. The owner of a [`SessionWriter`] holds the session's lock, so recovery never touches a turn that runs.
//! 2. The state is the fold of the log's records only: a record is applied when it is durable. The state before the
//!    last compaction comes from the snapshot in the compaction's record.
//! 3. Records are checked against the state before they are written: the log never holds an illegal record.
//! 4. An append that was dropped, or whose answer was lost, is settled under its first id before the next append.

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

/// Attempts of an append per call: the first, a repetition after a short failure of the store, and one more after its
/// restart. The caller decides about a longer wait for a store that does not answer.
const SETTLE_TRIES_MAX: u32 = 3;

/// Bytes of the encoding buffer that an idle session keeps: enough for most appends. A larger buffer is freed after
/// its append, so that ten thousand idle sessions stay small.
const SCRATCH_BYTES: usize = 1_024;

/// A session, open for writing under its lock.
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
    /// Records of the last append that the store refused or that were not sent.
    refused: Vec<SessionRecord>,
    recovered: Vec<SessionRecord>,
    observer: Option<RecordObserver>,
}

/// Called by the appending task with each record and its number, in order, once the record is durable. The observer
/// must not block.
pub type RecordObserver = Arc<dyn Fn(Version, &SessionRecord) + Send + Sync>;

/// An append that was sent and not answered.
#[derive(Debug)]
struct PendingAppend {
    id: AppendId,
    encoded: Vec<RecordBytes>,
    records: Vec<SessionRecord>,
    /// True if the append was sent before and may be written: a store error then no longer proves that the append is
    /// not written.
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
    /// Creates a session, takes its lock and records its settings. `folder` is its working folder.
    ///
    /// **Cancel safety**: dropping it may leave a session without turns, which [`SessionWriter::resume`] can open.
    ///
    /// # Errors
    /// [`SessionError::Exists`], [`SessionError::InUse`], or a failure of the store.
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

    /// Records the settings with which the session is opened, if they differ from those of the last opening.
    ///
    /// **Cancel safety**: as for [`SessionWriter::append`].
    ///
    /// # Errors
    /// As for [`SessionWriter::append`].
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

    /// Opens an existing session and takes its lock. A turn that a crash left open ends at the time `at`.
    ///
    /// **Cancel safety**: dropping it leaves the session unchanged or recovered.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::InUse`], an unreadable session, or a failure of the store.
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
        // Read under the lock, so that no append can come between the fold and the recovery.
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

    /// Appends records together, all or nothing, and applies them to the state once they are durable. An empty list
    /// only settles the previous append. If the records begin with a turn and the store refused the ending of the
    /// previous turn, this call ends that turn first, as after a crash.
    ///
    /// **Cancel safety**: a dropped append may have happened. The state does not show it until the next append, or
    /// [`SessionWriter::settle`], has finished it; it is never written halfway or twice. If the append was dropped
    /// while a previous append was being settled, it has not happened: see [`SessionWriter::take_refused_records`].
    ///
    /// # Errors
    /// [`SessionError::Illegal`] before anything is written; [`SessionError::Fenced`] if another writer has appended;
    /// [`SessionError::Indeterminate`]; or a failure of the store.
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

    /// Finishes an append that was dropped, or whose answer was lost. Does nothing if there is no such append.
    ///
    /// **Cancel safety**: as for [`SessionWriter::append`].
    ///
    /// # Errors
    /// As for [`SessionWriter::append`].
    pub async fn settle(&mut self) -> Result<(), SessionError> {
        for _ in 0..SETTLE_TRIES_MAX {
            let Some(pending) = &mut self.pending else {
                return Ok(());
            };
            // Set before the answer, because the caller may not wait for it.
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

    /// Returns the records of the last append if they are known to be unwritten: the store refused them, or did not
    /// get them. The events that they record have still happened.
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

    /// State of the session. A resumed session has the details of its turns only from the last compaction on.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Number of its last record.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The session's log.
    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Records of the recovery at `resume`: the endings of open calls and turns. Empty after a clean end.
    pub fn recovered(&self) -> &[SessionRecord] {
        &self.recovered
    }

    /// Deletes the session.
    ///
    /// **Cancel safety**: dropping it does not undo the deletion.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn delete(self) -> Result<(), SessionError> {
        Ok(self.log.delete(self.lock).await?)
    }
}
