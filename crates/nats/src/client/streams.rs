//! Lists and deletes whole streams.

use allstop_log::{LogError, LogErrorKind, StreamName, Version};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::client::append_message::deletion_headers;
use crate::client::attempts::Attempts;
use crate::client::errors::{self, NotPublished, RequestFailure};
use crate::client::store::NatsStore;
use crate::client::subject::{filter_of, name_of};

/// Number of parallel requests while the streams are listed.
const LIST_QUESTIONS_MAX: usize = 64;

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
        let names = self.names(&self.records, &self.log_root(), prefix).await?;
        let listed = stream::iter(names)
            .map(|name| async move {
                let end = self.end(&name).await?;
                // A deleted stream has no append, so it is not listed.
                Ok::<_, LogError>(end.append.map(|last| (name, last.head.last())))
            })
            .buffer_unordered(LIST_QUESTIONS_MAX)
            .try_filter_map(|found| async move { Ok(found) });
        let mut listed: Vec<_> = listed.try_collect().await?;
        listed.sort_unstable();
        Ok(listed)
    }

    /// Deletes a stream: the mark of a deletion replaces all messages of the stream. The servers accept the mark only
    /// if the last message of the stream has not changed since it was read. Therefore a late deletion never removes
    /// messages that other writers have added in the meantime.
    pub(crate) async fn delete(&self, stream: &StreamName) -> Result<(), LogError> {
        Self::check_name(stream)?;
        let mut attempts = Attempts::within(self.options.answer_max);
        let found = self.end(stream).await?;
        let mut last = found.position;
        while last.version > Version(0) {
            if last.sequence != found.position.sequence {
                return Err(LogError::new(LogErrorKind::Busy, errors::place("delete")));
            }
            let message = PublishMessage::build()
                .headers(deletion_headers())
                .expected_last_subject_sequence(last.sequence);
            let deleted = self.publish_message(self.subject(stream), message).await;
            let error = match deleted {
                Ok(_sequence) => break,
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
            self.delete_pieces(stream, found.position.deletion_sequence)
                .await;
        }
        Ok(())
    }

    /// Deletes the pieces of a deleted stream. If some pieces remain, no message refers to them.
    async fn delete_pieces(&self, stream: &StreamName, deletion_sequence: u64) {
        let pieces = self.piece_subject(stream, deletion_sequence);
        let purged = self.answer(self.records.purge().filter(pieces)).await;
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
