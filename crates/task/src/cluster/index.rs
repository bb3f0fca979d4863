//! The index of tasks, from which the cluster reads lists of tasks. The index is sorted by owner. Each task has one
//! entry, which the processes of the cluster update after changes of the task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{LogError, Version};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::link::{ClusterLink, PutError};
use super::node::ClusterNode;
use crate::manager::{ListFilter, TaskPage, TaskPosition, TaskSummary};
use crate::model::Task;

const INDEX_PREFIX: &str = "task/";

/// Changes of one task within this time are combined into one write of its entry. Therefore a list may lack the changes
/// of up to this duration.
const INDEX_DELAY: Duration = Duration::from_millis(200);

/// Maximum length, in bytes, of an owner's name that keys contain as it is. A longer name is replaced by its hash.
const OWNER_BYTES_MAX: usize = 128;

/// Maximum number of entries that are written at the same time.
const WRITES_MAX: usize = 16;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct IndexEntry {
    version: u64,
    task: TaskSummary,
}

/// A task in the index, with its entry.
#[derive(Debug)]
pub(super) struct IndexedTask {
    pub(super) task: TaskSummary,
    key: Arc<str>,
    revision: u64,
}

/// Tasks with outdated entries. The map contains each task at most once, so the size of the map is at most the number
/// of this node's tasks.
#[derive(Debug, Default)]
pub(super) struct IndexWriter {
    changed: Mutex<HashMap<TaskId, IndexEntry>>,
    has_changed: Notify,
}

/// Writes the entry of a task, unless the index contains a later entry.
async fn write(link: &dyn ClusterLink, entry: &IndexEntry) -> Result<(), LogError> {
    let key = format!(
        "{}{}",
        owner_prefix(INDEX_PREFIX, &entry.task.owner),
        entry.task.id
    );
    let value = serde_json::to_vec(entry).unwrap_or_default();
    loop {
        let known = link.entry(&key).await?;
        let revision = known.as_ref().map_or(0, |known| known.revision);
        if let Some(known) = known
            && serde_json::from_slice::<IndexEntry>(&known.value)
                .is_ok_and(|known| known.version >= entry.version)
        {
            return Ok(());
        }
        match link.put(&key, value.clone(), Some(revision), None).await {
            Ok(_) => return Ok(()),
            Err(PutError::Conflict) => {}
            Err(PutError::Unknown(error) | PutError::Failed(error)) => return Err(error),
        }
    }
}

/// Prefix of an owner's keys. The prefix encodes the name, because a name may contain any characters, and may be the
/// beginning of another name. A long name is hashed, because stores limit the length of keys.
pub(super) fn owner_prefix(kind: &str, owner: &str) -> String {
    if owner.len() <= OWNER_BYTES_MAX {
        format!("{kind}{}/", hex(owner.as_bytes()))
    } else {
        // A short name is encoded in hexadecimal, so its prefix cannot start with `sha256-`.
        format!("{kind}sha256-{}/", hex(&Sha256::digest(owner)))
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16);
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(digits).flatten().collect()
}

impl ClusterNode {
    /// Notes that the entry of a task is outdated.
    pub(crate) fn note(&self, version: Version, task: &Task) {
        let entry = entry_of(version, task);
        self.index.changed.lock().insert(task.id.clone(), entry);
        self.index.has_changed.notify_one();
    }

    /// Writes the entry of a task now.
    pub(super) async fn index_now(&self, version: Version, task: &Task) -> Result<(), LogError> {
        write(self.link(), &entry_of(version, task)).await
    }

    /// Writes entries of changed tasks for the lifetime of the node.
    pub(super) async fn write_index(&self) -> ! {
        loop {
            self.index.has_changed.notified().await;
            sleep(INDEX_DELAY).await;
            if !self.flush_index().await {
                self.index.has_changed.notify_one();
            }
        }
    }

    /// Writes the entries of changed tasks now. Returns false if at least one entry could not be written.
    ///
    /// # Cancel safety
    /// If the call is dropped, it does not write the remaining entries. An entry is then outdated until its task
    /// changes again.
    pub(crate) async fn flush_index(&self) -> bool {
        let changed = std::mem::take(&mut *self.index.changed.lock());
        let failed = stream::iter(changed.into_values())
            .map(|entry| async move {
                let written = write(self.link(), &entry).await;
                written.err().map(|error| (entry, error))
            })
            .buffer_unordered(WRITES_MAX)
            .filter_map(std::future::ready)
            .collect::<Vec<_>>()
            .await;
        let Some((_, error)) = failed.first() else {
            return true;
        };
        tracing::debug!(%error, tasks = failed.len(), "entries of tasks are written later");
        let mut changed = self.index.changed.lock();
        for (entry, _) in failed {
            changed.entry(entry.task.id.clone()).or_insert(entry);
        }
        false
    }

    /// Reads the index of all owners.
    pub(super) async fn indexed_tasks(&self) -> Result<Vec<IndexedTask>, LogError> {
        self.tasks_below(INDEX_PREFIX).await
    }

    async fn tasks_below(&self, prefix: &str) -> Result<Vec<IndexedTask>, LogError> {
        let entries = self.link().entries(prefix).await?;
        let tasks = entries.into_iter().filter_map(|entry| {
            let IndexEntry { task, .. } = serde_json::from_slice(&entry.value).ok()?;
            Some(IndexedTask {
                task,
                key: entry.key,
                revision: entry.revision,
            })
        });
        Ok(tasks.collect())
    }

    /// Removes the entry of a deleted task, unless the entry has changed since it was read.
    pub(super) async fn remove_indexed(&self, indexed: &IndexedTask) -> Result<(), LogError> {
        self.index.changed.lock().remove(&indexed.task.id);
        self.link().remove(&indexed.key, indexed.revision).await
    }

    /// Returns a page of a list. Reads all entries of the owner. If the filter has no owner, reads the entries of all
    /// owners.
    pub(crate) async fn list(
        &self,
        filter: &ListFilter,
        after: Option<&TaskPosition>,
        limit: usize,
    ) -> Result<TaskPage, LogError> {
        let prefix = match &filter.owner {
            Some(owner) => owner_prefix(INDEX_PREFIX, owner),
            None => INDEX_PREFIX.to_owned(),
        };
        let tasks = self.tasks_below(&prefix).await?;
        let tasks = tasks.into_iter().map(|indexed| indexed.task);
        let mut tasks: Vec<_> = tasks.filter(|task| filter.lets_through(task)).collect();
        let total = tasks.len();
        tasks.sort_unstable_by(|a, b| (b.updated_at, &b.id).cmp(&(a.updated_at, &a.id)));
        tasks.retain(|task| task.is_after(after));
        Ok(TaskPage::first(tasks, limit, total))
    }
}

fn entry_of(version: Version, task: &Task) -> IndexEntry {
    IndexEntry {
        version: version.0,
        task: TaskSummary::of(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_owners_differ_and_are_short() {
        assert_eq!(owner_prefix("task/", "a/"), "task/612f/");
        let (long, longer) = ("a".repeat(4_096), "a".repeat(4_097));
        let prefix = owner_prefix("task/", &long);
        assert!(prefix.len() < 100, "{prefix}");
        assert_ne!(prefix, owner_prefix("task/", &longer));
    }
}
