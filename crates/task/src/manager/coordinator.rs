//! Coordination of the tasks in a store, by one process or by all processes of a cluster.

use std::sync::Arc;

use allstop_core::{TaskId, Timestamp, WorkerId};
use allstop_log::{StreamLock, Version};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::table::TaskTable;
use crate::cluster::{ClusterNode, DeadLetter, RemoteLiveText};
use crate::error::TaskStoreError;
use crate::model::{Task, TaskRecord};
use crate::task_stream::TaskStream;

/// Coordination of the tasks in a store.
pub(crate) enum Coordinator {
    /// This process alone manages the store. The table of its manager contains all tasks.
    Local {
        /// Prevents other processes from managing the tasks.
        _lock: StreamLock,
    },
    /// The processes of a cluster manage the store. The table of this process contains only the executions of this
    /// process.
    Cluster(Arc<ClusterNode>),
}

impl Coordinator {
    /// Updates the table of this process, or the index of tasks in a cluster, after the store has confirmed an append.
    pub(super) fn note(&self, table: &Mutex<TaskTable>, stream: &TaskStream) {
        match (stream.task(), self) {
            (Some(task), Self::Local { .. }) => {
                table.lock().note(stream.version(), task, stream.feed());
            }
            (Some(task), Self::Cluster(node)) => node.note(stream.version(), task),
            (None, _) => {}
        }
    }

    /// False if this worker has lost its lease, which permits it to run tasks.
    pub(super) fn may_start(&self, worker: Option<&WorkerId>) -> bool {
        match (self, worker) {
            (Self::Cluster(node), Some(worker)) => node.worker().as_ref() == Some(worker),
            _ => true,
        }
    }

    /// True if the last execution of the task ran at another worker, and nothing proves that the work of this worker has
    /// ended. The keepers of one process prove the ends of its work, so no such work exists without a cluster.
    pub(super) fn may_have_work_elsewhere(&self, task: &Task, own: Option<&WorkerId>) -> bool {
        match self {
            Self::Local { .. } => false,
            Self::Cluster(node) => node.may_have_work_elsewhere(task, own),
        }
    }

    /// Source of the live text of a task for a subscriber. `None` if the subscriber reads the feed of this process.
    pub(crate) fn remote_live_text(&self, task: &Task) -> Option<RemoteLiveText> {
        match self {
            Self::Local { .. } => None,
            Self::Cluster(node) => Some(RemoteLiveText::new(Arc::clone(node), task)),
        }
    }

    /// Notifies the workers of a task that this worker has handed over.
    pub(super) async fn wake(&self, task: &Task, now: Timestamp) {
        let Self::Cluster(node) = self else {
            return;
        };
        if let Err(error) = node.wake_for(&task.id, Version::default(), now).await {
            // The earlier wake-up of the task is delivered again when this worker no longer holds it.
            tracing::debug!(%error, task = %task.id, "a task that was handed over starts later");
        }
    }

    /// Appends a record, and announces the record to the worker that now owns the task.
    pub(super) async fn append_announced(
        &self,
        stream: &mut TaskStream,
        record: TaskRecord,
        now: Timestamp,
    ) -> Result<(), TaskStoreError> {
        match self {
            Self::Local { .. } => stream.append(vec![record]).await,
            Self::Cluster(node) => node.append_announced(stream, record, now).await,
        }
    }

    pub(super) fn keep_receipt(&self, task: &TaskId, late: TaskRecord) {
        if let Self::Cluster(node) = self {
            node.late_receipts.keep(task, late);
        }
    }

    /// Finishes the work that this process does for clients and other nodes. Waits at most until `until`.
    pub(super) async fn close(&self, until: Instant) {
        if let Self::Cluster(node) = self {
            node.close(until).await;
        }
    }

    /// Adds the id of the new task, which repeats the work, to the dead letter (the entry about a task that no worker
    /// runs any more).
    pub(crate) async fn note_again(
        &self,
        letter: &DeadLetter,
        again: &TaskId,
    ) -> Result<(), TaskStoreError> {
        match self {
            Self::Local { .. } => Ok(()),
            Self::Cluster(node) => Ok(node.note_again(letter, again).await?),
        }
    }
}
