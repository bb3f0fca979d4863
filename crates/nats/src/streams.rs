//! Streams as a whole: their list, and their deletion.

use allstop_log::{LogError, StreamName, Version};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::errors;
use crate::store::NatsStore;
use crate::subject::{filter_of, name_of};

/// Questions to the servers at the same time while streams are listed.
const LIST_QUESTIONS_MAX: usize = 64;

impl NatsStore {
    /// Lists as [`Log::list`](allstop_log::Log::list) has it.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(StreamName, Version)>, LogError> {
        let root = self.log_root();
        let failed = |error| errors::unreachable("list", error);
        let subjects = self
            .records
            .info_with_subjects(filter_of(&root, prefix))
            .await;
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
                let last = self.last(&name).await?;
                // A stream that was deleted meanwhile has none.
                Ok::<_, LogError>(last.map(|last| (name, last.head.last())))
            })
            .buffer_unordered(LIST_QUESTIONS_MAX)
            .try_filter_map(|found| async move { Ok(found) });
        let mut listed: Vec<_> = listed.try_collect().await?;
        listed.sort_unstable();
        Ok(listed)
    }

    /// Deletes the records of a stream.
    pub(crate) async fn delete(&self, stream: &StreamName) -> Result<(), LogError> {
        // First the records: without them nothing names the pieces.
        for subject in [self.subject(stream), self.piece_subject(stream)] {
            let purged = self.records.purge().filter(subject).await;
            purged.map_err(|error| errors::unreachable("delete", error))?;
        }
        self.positions.forget(stream);
        Ok(())
    }
}
