//! Streams as a whole: their list, and their deletion.

use allstop_log::{LogError, LogErrorKind, StreamName, Version};
use async_nats::jetstream::message::PublishMessage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::append_message::deletion_headers;
use crate::attempts::Attempts;
use crate::errors::{self, NotPublished, RequestFailure};
use crate::store::NatsStore;
use crate::subject::{filter_of, name_of};

/// Questions to the servers at the same time while streams are listed.
const LIST_QUESTIONS_MAX: usize = 64;

impl NatsStore {
    /// Lists as [`Log::list`](allstop_log::Log::list) has it.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(StreamName, Version)>, LogError> {
        let root = self.log_root();
        let failed = |error| errors::unreachable("list", error);
        self.check_connection()
            .map_err(RequestFailure::into_error)?;
        let subjects = self.records.info_with_subjects(filter_of(&root, prefix));
        let subjects = self.answer(subjects).await;
        let subjects = subjects.ok_or_else(|| errors::disconnected("list"))?;
        let mut subjects = subjects.map_err(failed)?;
        let mut names = Vec::new();
        while let Some((subject, _messages)) = subjects.try_next().await.map_err(failed)? {
            let tokens = subject
                .strip_prefix(&root)
                .and_then(|rest| rest.strip_prefix('.'));
            let name = tokens.and_then(name_of);
            names.extend(name.filter(|name| name.as_str().starts_with(prefix)));
        }
        let listed = stream::iter(names)
            .map(|name| async move {
                let end = self.end(&name).await?;
                // A deleted stream has none.
                Ok::<_, LogError>(end.append.map(|last| (name, last.head.last())))
            })
            .buffer_unordered(LIST_QUESTIONS_MAX)
            .try_filter_map(|found| async move { Ok(found) });
        let mut listed: Vec<_> = listed.try_collect().await?;
        listed.sort_unstable();
        Ok(listed)
    }

    /// Deletes a stream: a mark takes the place of its messages, if they are those that were found. So a deletion that
    /// arrives late takes nothing of what others have written meanwhile.
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
            self.delete_pieces(stream, found.position.birth).await;
        }
        Ok(())
    }

    /// Deletes the pieces of a deleted stream. What stays is named by nothing.
    async fn delete_pieces(&self, stream: &StreamName, birth: u64) {
        let pieces = self.piece_subject(stream, birth);
        let purged = self.answer(self.records.purge().filter(pieces)).await;
        if !matches!(purged, Some(Ok(_))) {
            tracing::debug!(%stream, "pieces of a deleted stream stay");
        }
    }
}
