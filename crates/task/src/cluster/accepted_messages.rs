//! Messages that this node has accepted, until it has read the ends of their executions. Workers run the executions, so a
//! front end learns of the ends only from the log. The observer of the node counts messages and ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::TaskId;
use allstop_log::{Log, Version};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::error::TaskStoreError;
use crate::model::{TaskRecord, TaskState};
use crate::observer::TaskObserver;
use crate::task_stream::{READ_LEN_MAX, read_updates};

/// Interval of the reads. An end is therefore observed up to this time later.
const READ_EVERY: Duration = Duration::from_secs(2);

/// Maximum number of tasks that are read at the same time.
const READS_MAX: usize = 16;

/// Maximum number of tasks that are followed. The ends of further tasks are not observed.
const FOLLOWED_MAX: usize = 65_536;

/// Accepted messages whose executions have not ended.
#[derive(Debug, Default)]
pub(super) struct AcceptedMessages(Mutex<HashMap<TaskId, FollowedTask>>);

/// A task with accepted messages.
#[derive(Debug, Clone, Copy)]
struct FollowedTask {
    /// Number of the last record that was read.
    cursor: Version,
    /// Number of messages whose executions have not ended.
    open: usize,
}

impl AcceptedMessages {
    /// Adds a message that is stored in this record.
    pub(super) fn add(&self, task: &TaskId, record: Version) {
        let mut followed = self.0.lock();
        if followed.len() >= FOLLOWED_MAX && !followed.contains_key(task) {
            tracing::debug!(%task, "the end of a task is not observed: too many tasks are open");
            return;
        }
        let new = FollowedTask {
            cursor: record,
            open: 0,
        };
        followed.entry(task.clone()).or_insert(new).open += 1;
    }

    /// Reads the tasks again and again, and notifies the observer of the ends, for as long as the future is polled.
    pub(super) async fn follow(&self, log: &Arc<dyn Log>, observer: &dyn TaskObserver) -> ! {
        loop {
            sleep(READ_EVERY).await;
            let followed: Vec<_> = {
                let followed = self.0.lock();
                followed
                    .iter()
                    .map(|(id, task)| (id.clone(), *task))
                    .collect()
            };
            stream::iter(followed)
                .map(|(id, task)| async move {
                    let read = read_ends(&**log, &id, task.cursor).await;
                    (id, read)
                })
                .buffer_unordered(READS_MAX)
                .for_each(|(id, read)| {
                    self.note(&id, read, observer);
                    std::future::ready(())
                })
                .await;
        }
    }

    fn note(
        &self,
        id: &TaskId,
        read: Result<(Version, Vec<TaskState>), TaskStoreError>,
        observer: &dyn TaskObserver,
    ) {
        match read {
            Ok((cursor, ends)) => {
                let mut followed = self.0.lock();
                let Some(task) = followed.get_mut(id) else {
                    return;
                };
                let ends = ends.into_iter().take(task.open);
                task.cursor = cursor;
                task.open -= ends.len();
                if task.open == 0 {
                    followed.remove(id);
                }
                drop(followed);
                ends.for_each(|state| observer.message_ended(state));
            }
            // A later version wrote the record, or the record is damaged.
            Err(error @ (TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. })) => {
                tracing::debug!(%error, task = %id, "the end of a task is not observed");
                self.0.lock().remove(id);
            }
            Err(error) => tracing::debug!(%error, task = %id, "a task is read later"),
        }
    }
}

/// Reads the ends of executions after a record. Also returns the number of the last record.
async fn read_ends(
    log: &dyn Log,
    id: &TaskId,
    mut cursor: Version,
) -> Result<(Version, Vec<TaskState>), TaskStoreError> {
    let mut ends = Vec::new();
    loop {
        let updates = read_updates(log, id, cursor, READ_LEN_MAX).await?;
        let Some(last) = updates.last() else {
            return Ok((cursor, ends));
        };
        cursor = last.version;
        ends.extend(updates.iter().filter_map(|update| end_of(&update.record)));
    }
}

/// State of the task after the end of an execution. `None` if the record ends no execution.
fn end_of(record: &TaskRecord) -> Option<TaskState> {
    match record {
        TaskRecord::Replied { .. } => Some(TaskState::Completed),
        TaskRecord::TaskEnded { status, .. } | TaskRecord::StatusChanged { status, .. }
            if record.ends_execution() =>
        {
            Some(status.state)
        }
        _ => None,
    }
}
