//! Coordination of the tasks of a store: by this process alone, or by all processes of a cluster.

use std::sync::Arc;

use allstop_core::{TaskId, Timestamp, WorkerId};
use allstop_log::StreamLock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::table::TaskTable;
use crate::cluster::{ClusterNode, DeadLetter};
use crate::error::TaskStoreError;
use crate::model::TaskRecord;
use crate::task_stream::TaskStream;

/// Coordination of the tasks of a store.
pub(crate) enum Coordinator {
    /// By this process alone: the table contains all tasks.
    Local {
        /// Keeps other processes from managing the tasks.
        _lock: StreamLock,
    },
    /// By the processes of a cluster: the table contains the executions of this process.
    Cluster(Arc<ClusterNode>),
}

impl Coordinator {
    /// Updates the task's entry after a confirmed append.
    pub(super) fn note(&self, table: &Mutex<TaskTable>, stream: &TaskStream) {
        match (stream.task(), self) {
            (Some(task), Self::Local { .. }) => table.lock().note(task, stream.feed()),
            (Some(task), Self::Cluster(node)) => node.note(stream.version(), task),
            (None, _) => {}
        }
    }

    /// False if this worker has lost its lease.
    pub(super) fn may_start(&self, worker: Option<&WorkerId>) -> bool {
        match (self, worker) {
            (Self::Cluster(node), Some(worker)) => node.worker().as_ref() == Some(worker),
            _ => true,
        }
    }

    /// Appends a record, and announces it to the worker that now has the task.
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

    /// Finishes the work that this process does for clients and other nodes, and waits until `until` at most.
    pub(super) async fn close(&self, until: Instant) {
        if let Self::Cluster(node) = self {
            node.close(until).await;
        }
    }

    /// Notes the new task that repeats the work of a dead letter.
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
