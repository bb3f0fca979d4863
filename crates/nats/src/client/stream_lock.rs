//! Locks of streams. A lock is a message that names the process that holds the lock. The lock is valid while this
//! process has a presence on the servers. A presence is a message with a time to live, which the process renews.

use allstop_core::process::ProcessIdentity;
use allstop_log::{LogError, LogErrorKind, StreamName};
use allstop_process::this_process;
use async_nats::jetstream::message::PublishMessage;
use serde::{Deserialize, Serialize};

use crate::client::attempts::Attempts;
use crate::client::errors::{self, NotPublished, place};
use crate::client::store::NatsStore;

/// Body of the message of a lock, and of the message of a presence.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LockHolder {
    /// Id of the presence.
    pub presence: String,
    pub process: ProcessIdentity,
}

/// Answer to a request for a lock.
#[derive(Debug)]
pub(crate) enum LockTaken {
    /// The lock is taken. The value is the sequence number of the lock's message.
    Taken(u64),
    HeldBy(ProcessIdentity),
}

/// The lock message that a stream has at present.
struct PresentLock {
    holder: LockHolder,
    sequence: u64,
}

impl NatsStore {
    /// Takes a lock for this process. `is_held` is true if the process already holds this lock.
    pub(crate) async fn take_lock(
        &self,
        stream: &StreamName,
        presence: &str,
        is_held: bool,
    ) -> Result<LockTaken, LogError> {
        Self::check_name(stream)?;
        let body = body_of(presence)?;
        let mut attempts = Attempts::within(self.options.answer_max);
        loop {
            let present = self.lock_of(stream).await?;
            if let Some(lock) = &present
                && self.counts(lock, presence, is_held).await?
            {
                return Ok(LockTaken::HeldBy(lock.holder.process.clone()));
            }
            let message = PublishMessage::build()
                .payload(body.clone().into())
                .expected_last_subject_sequence(present.map_or(0, |lock| lock.sequence));
            let sent = self.publish_message(self.lock_subject(stream), message);
            let error = match sent.await {
                Ok(sequence) => return Ok(LockTaken::Taken(sequence)),
                // Another process was faster. Or an earlier attempt of this process was stored, and its answer was
                // lost.
                Err(NotPublished::WrongPosition) => None,
                Err(error) => Some(error.into_error()),
            };
            if !attempts.next().await {
                let busy = || LogError::new(LogErrorKind::Busy, place("lock"));
                return Err(error.unwrap_or_else(busy));
            }
        }
    }

    /// Process that holds the lock of a stream.
    pub(crate) async fn lock_holder(
        &self,
        stream: &StreamName,
        presence: &str,
        is_held: bool,
    ) -> Result<Option<ProcessIdentity>, LogError> {
        let Some(lock) = self.lock_of(stream).await? else {
            return Ok(None);
        };
        let counts = self.counts(&lock, presence, is_held).await?;
        Ok(counts.then_some(lock.holder.process))
    }

    /// True if this lock is valid. A lock of another process is valid while that process is present. A lock of this
    /// process is valid only if code of the process holds it; if not, an earlier release has failed.
    async fn counts(
        &self,
        lock: &PresentLock,
        presence: &str,
        is_held: bool,
    ) -> Result<bool, LogError> {
        if lock.holder.presence == presence {
            return Ok(is_held);
        }
        let subject = self.presence_subject(&lock.holder.presence);
        let found = self.message_by(|| {
            let ask = self.locks.raw_message_builder();
            ask.last_by_subject(&*subject).send()
        });
        Ok(found.await?.is_some())
    }

    /// Removes a lock of this process that no code holds. Such a lock remains after a failed release, or after a
    /// request without an answer.
    pub(crate) async fn remove_lock(
        &self,
        stream: &StreamName,
        presence: &str,
    ) -> Result<(), LogError> {
        let lock = self.lock_of(stream).await?;
        let Some(lock) = lock.filter(|lock| lock.holder.presence == presence) else {
            return Ok(());
        };
        // The deletion names a sequence number. If another process has taken the lock since, its message has another
        // number and stays.
        let removed = self.answer(self.locks.delete_message(lock.sequence)).await;
        let removed = removed.ok_or_else(|| errors::disconnected("release"))?;
        removed.map_err(|error| errors::unreachable("release", error))?;
        Ok(())
    }

    /// Removes the presence of this process. Afterwards all locks of the process are invalid.
    pub(crate) async fn remove_presence(&self, presence: &str) -> Result<(), LogError> {
        let subject = self.presence_subject(presence);
        let purged = self.answer(self.locks.purge().filter(subject)).await;
        let purged = purged.ok_or_else(|| errors::disconnected("release"))?;
        purged.map_err(|error| errors::unreachable("release", error))?;
        Ok(())
    }

    async fn lock_of(&self, stream: &StreamName) -> Result<Option<PresentLock>, LogError> {
        let subject = self.lock_subject(stream);
        let message = self.message_by(|| {
            let ask = self.locks.raw_message_builder();
            ask.last_by_subject(&*subject).send()
        });
        let Some(message) = message.await? else {
            return Ok(None);
        };
        let holder = serde_json::from_slice(&message.payload).map_err(|error| {
            LogError::new(LogErrorKind::Corrupt, place("lock")).caused_by(error)
        })?;
        Ok(Some(PresentLock {
            holder,
            sequence: message.sequence,
        }))
    }
}

/// Creates the body of a message that identifies this process.
pub(crate) fn body_of(presence: &str) -> Result<Vec<u8>, LogError> {
    let holder = LockHolder {
        presence: presence.to_owned(),
        process: this_process().clone(),
    };
    serde_json::to_vec(&holder)
        .map_err(|error| LogError::new(LogErrorKind::Io, place("lock")).caused_by(error))
}
