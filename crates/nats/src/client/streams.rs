//! Lists and deletes whole streams.

use std::cmp::Reverse;

use allstop_log::{LogError, LogErrorKind, StreamName, Version};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::client::append_message::deletion_headers;
use crate::client::attempts::Attempts;
use crate::client::errors::{self, NotPublished, RequestFailure};
use crate::client::fetch::FoundEnd;
use crate::client::positions::Position;
use crate::client::store::NatsStore;
use crate::client::subject::{filter_of, name_of};

/// Number of parallel requests while the streams are listed.
const LIST_QUESTIONS_MAX: usize = 64;

/// Number of streams that are deleted in parallel. The number is low, because a deletion must not delay appends.
const DELETIONS_MAX: usize = 8;

impl NatsStore {
    /// Lists names that start with a prefix. The names come from the subjects below a root in a JetStream stream.
    /// Repeats the request until the servers answer.
    pub(crate) async fn names(
        &self,
        messages: &Stream,
        root: &str,
        prefix: &str,
    ) -> Result<Vec<StreamName>, LogError> {
        let mut attempts = Attempts::within(self.options.answer_max);
        loop {
            let failure = match self.check_connection() {
                Err(failure) => failure,
                Ok(()) => match self
                    .answer(subjects(messages, &filter_of(root, prefix)))
                    .await
                {
                    Some(Ok(subjects)) => {
                        let name = |subject: &String| {
                            name_of(subject.strip_prefix(root)?.strip_prefix('.')?)
                        };
                        let mut names: Vec<_> = subjects.iter().filter_map(name).collect();
                        names.retain(|name| name.as_str().starts_with(prefix));
                        return Ok(names);
                    }
                    Some(Err(error)) => RequestFailure::Passing(error),
                    None => RequestFailure::Passing(errors::disconnected("list")),
                },
            };
            match failure {
                RequestFailure::Passing(_) if attempts.next().await => {}
                failure => return Err(failure.into_error()),
            }
        }
    }

    /// Implements [`Log::list`](allstop_log::Log::list).
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(StreamName, Version)>, LogError> {
        let mut listed = self.listed(prefix).await?;
        listed.sort_unstable_by(|(_, one), (_, other)| one.cmp(other));
        Ok(listed.into_iter().map(|(_, stream)| stream).collect())
    }

    /// Implements [`Log::list_newest_first`](allstop_log::Log::list_newest_first).
    pub(crate) async fn list_newest_first(
        &self,
        prefix: &str,
    ) -> Result<Vec<(StreamName, Version)>, LogError> {
        let mut listed = self.listed(prefix).await?;
        listed.sort_unstable_by_key(|(sequence, _)| Reverse(*sequence));
        Ok(listed.into_iter().map(|(_, stream)| stream).collect())
    }

    /// The sequence number of each stream's last message, and the stream.
    async fn listed(&self, prefix: &str) -> Result<Vec<(u64, (StreamName, Version))>, LogError> {
        let names = self.names(&self.records, &self.log_root(), prefix).await?;
        let listed = stream::iter(names)
            .map(|name| async move {
                let end = self.end(&name).await?;
                // A deleted stream has no append, so it is not listed.
                let sequence = end.position.sequence;
                Ok::<_, LogError>(end.append.map(|last| (sequence, (name, last.head.last()))))
            })
            .buffer_unordered(LIST_QUESTIONS_MAX)
            .try_filter_map(|found| async move { Ok(found) });
        listed.try_collect().await
    }

    /// Deletes a stream. The mark of the deletion stays.
    pub(crate) async fn delete(&self, stream: &StreamName) -> Result<(), LogError> {
        Self::check_name(stream)?;
        let found = self.end(stream).await?;
        match self.replace_by_mark(stream, found).await? {
            Some(_mark) => Ok(()),
            None => Err(LogError::new(LogErrorKind::Busy, errors::place("delete"))),
        }
    }

    /// Implements [`Log::delete_unchanged`](allstop_log::Log::delete_unchanged).
    pub(crate) async fn delete_unchanged(
        &self,
        streams: Vec<(StreamName, Version)>,
    ) -> Result<Vec<StreamName>, LogError> {
        let deleted = stream::iter(streams)
            .map(|(name, expected)| async move {
                let is_gone = self.delete_at(&name, expected).await?;
                Ok::<_, LogError>(is_gone.then_some(name))
            })
            .buffered(DELETIONS_MAX)
            .try_filter_map(|gone| async move { Ok(gone) });
        deleted.try_collect().await
    }

    /// Deletes a stream at this version, and leaves no message. Returns false if the stream has another version.
    async fn delete_at(&self, stream: &StreamName, expected: Version) -> Result<bool, LogError> {
        Self::check_name(stream)?;
        let found = self.end(stream).await?;
        if found.position.version != expected {
            return Ok(false);
        }
        let Some(mark) = self.replace_by_mark(stream, found).await? else {
            return Ok(false);
        };
        if mark > 0 {
            // The purge ends at the mark, so it never removes messages of a stream that has begun since then.
            let marks = self.records.purge().sequence(mark + 1);
            let purged = self.answer(marks.filter(self.subject(stream))).await;
            let purged = purged.ok_or_else(|| errors::disconnected("delete"))?;
            purged.map_err(|error| errors::unreachable("delete", error))?;
            self.positions.forget(stream);
        }
        Ok(true)
    }

    /// Replaces all messages of a stream by the mark of a deletion. The servers accept the mark only if the last message
    /// of the stream is still the message that was found. Therefore a late deletion never removes messages that other
    /// writers have added in the meantime. Returns the sequence number of the mark, or 0 if the stream has no message.
    /// `None` if other writers have added messages.
    async fn replace_by_mark(
        &self,
        stream: &StreamName,
        found: FoundEnd,
    ) -> Result<Option<u64>, LogError> {
        let mut attempts = Attempts::within(self.options.answer_max);
        let mut last = found.position;
        while last.version > Version(0) {
            if last.sequence != found.position.sequence {
                return Ok(None);
            }
            let message = PublishMessage::build()
                .headers(deletion_headers())
                .expected_last_subject_sequence(last.sequence);
            let deleted = self.publish_message(self.subject(stream), message).await;
            let error = match deleted {
                Ok(sequence) => {
                    last.sequence = sequence;
                    break;
                }
                Err(NotPublished::Failed(RequestFailure::Lasting(error))) => return Err(error),
                Err(error) => error.into_error(),
            };
            if !attempts.next().await {
                return Err(error);
            }
            last = self.end(stream).await?.position;
        }
        self.positions.forget(stream);
        if found.append.is_some() {
            self.delete_pieces(stream, found.position).await;
        }
        Ok(Some(last.sequence))
    }

    /// Deletes the pieces of a deleted stream, which are earlier than its last append. Later pieces may belong to the next
    /// stream of this name. If some pieces remain, no message refers to them.
    async fn delete_pieces(&self, stream: &StreamName, end: Position) {
        let pieces = self.piece_subject(stream, end.deletion_sequence);
        let earlier = self.records.purge().sequence(end.sequence);
        let purged = self.answer(earlier.filter(pieces)).await;
        if !matches!(purged, Some(Ok(_))) {
            tracing::debug!(%stream, "pieces of a deleted stream stay");
        }
    }
}

async fn subjects(messages: &Stream, filter: &str) -> Result<Vec<String>, LogError> {
    let failed = |error| errors::unreachable("list", error);
    let subjects = messages.info_with_subjects(filter).await.map_err(failed)?;
    let subjects = subjects.map_ok(|(subject, _messages)| subject);
    subjects.try_collect().await.map_err(failed)
}
