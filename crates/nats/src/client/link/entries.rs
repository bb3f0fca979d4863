//! Entries of the link between the managers of a cluster. An entry is a value under a key. Each entry is the only
//! message of its subject.

use std::time::Duration;

use allstop_log::{LogError, StreamName};
use allstop_task::{LinkEntry, PutError};
use async_nats::jetstream::message::PublishMessage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::LinkParts;
use crate::client::errors::{self, NotPublished, RequestFailure};
use crate::client::store::NatsStore;
use crate::client::subject::tokens_of;

/// Number of parallel requests while entries are listed.
const LIST_QUESTIONS_MAX: usize = 64;

impl LinkParts {
    fn root(&self) -> String {
        format!("{}.entry", self.store.options.prefix)
    }

    fn entry_subject(&self, key: &str) -> Result<String, LogError> {
        let name = StreamName::new(key);
        NatsStore::check_name(&name)?;
        Ok(format!("{}.{}", self.root(), tokens_of(&name)))
    }

    pub(super) async fn entry(&self, key: &str) -> Result<Option<LinkEntry>, LogError> {
        let subject = self.entry_subject(key)?;
        let message = self.store.message_by(|| {
            let ask = self.entries.raw_message_builder();
            ask.last_by_subject(&*subject).send()
        });
        Ok(message.await?.map(|message| LinkEntry {
            key: key.into(),
            revision: message.sequence,
            value: message.payload.to_vec(),
        }))
    }

    /// Lists the subjects with one request, and reads each value with a separate request.
    pub(super) async fn entries(&self, prefix: &str) -> Result<Vec<LinkEntry>, LogError> {
        let keys = self
            .store
            .names(&self.entries, &self.root(), prefix)
            .await?;
        stream::iter(keys)
            .map(|key| async move { self.entry(key.as_str()).await })
            .buffer_unordered(LIST_QUESTIONS_MAX)
            .try_filter_map(|found| async move { Ok(found) })
            .try_collect()
            .await
    }

    pub(super) async fn put(
        &self,
        key: &str,
        value: Vec<u8>,
        expected: Option<u64>,
        ttl: Option<Duration>,
    ) -> Result<u64, PutError> {
        let subject = self.entry_subject(key)?;
        let mut message = PublishMessage::build().payload(value.into());
        if let Some(expected) = expected {
            message = message.expected_last_subject_sequence(expected);
        }
        if let Some(ttl) = ttl {
            message = message.ttl(ttl);
        }
        let put = self.store.publish_message(subject, message).await;
        put.map_err(|error| match error {
            NotPublished::WrongPosition => PutError::Conflict,
            NotPublished::Unknown(error) => PutError::Unknown(error),
            NotPublished::Failed(failure) => PutError::Failed(failure.into_error()),
        })
    }

    /// The purge ends at the message of this revision. If the entry has changed, its message is later and stays.
    pub(super) async fn remove(&self, key: &str, revision: u64) -> Result<(), LogError> {
        let subject = self.entry_subject(key)?;
        self.store
            .check_connection()
            .map_err(RequestFailure::into_error)?;
        let purge = self.entries.purge().sequence(revision + 1).filter(subject);
        let purged = self.store.answer(purge).await;
        let purged = purged.ok_or_else(|| errors::disconnected("entry"))?;
        purged.map_err(|error| errors::unreachable("entry", error))?;
        Ok(())
    }
}
