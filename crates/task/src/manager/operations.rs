//! Operations of the manager. One process performs them alone, or the processes of a cluster perform them together.

use std::sync::Arc;

use allstop_core::{Cause, Receipt, TaskId, WorkerId};
use allstop_log::Version;

use super::cancel::CancelOutcome;
use super::coordinator::Coordinator;
use super::execute::{AcceptedTask, TaskRequest};
use super::list::{ListFilter, TaskPage, TaskPosition};
use super::wake::WakeAdmission;
use super::{ManagerInner, TaskManager};
use crate::cluster::{DeadLetter, WorkerInfo};
use crate::error::{CancelError, ExecuteError, ReadTaskError, TaskStoreError};
use crate::feed::TaskFeed;
use crate::model::Task;

impl TaskManager {
    /// Accepts a message and starts its execution.
    ///
    /// # Cancel safety
    /// Dropping the future stops nothing: the manager still accepts or refuses the message.
    pub async fn execute(&self, request: TaskRequest) -> Result<AcceptedTask, ExecuteError> {
        if let Some(context) = &request.context_id {
            self.inner.check_context(context)?;
        }
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.execute_locally(request).await,
            Coordinator::Cluster(node) => self.execute_in_cluster(node, request).await,
        }
    }

    /// Stops a task. If the task runs, its execution is stopped. If the task is at rest (no execution runs), the task
    /// ends. A second stop joins the first. If the execution has already ended or come to rest when the stop reaches
    /// it, the manager decides the stop again with the new state. If the task has ended, the call stops the orphaned
    /// work of the task: work that still runs.
    ///
    /// The answer comes within the grace (the time before a stop uses force), the time for force, and the time for the
    /// write of the end ([`ending_write_max`](crate::TaskOptions::ending_write_max)). A stop that is decided again can
    /// need this time once more. [`CancelError::Store`] means that the work was stopped but the store has not confirmed
    /// the end. The manager then repeats the write.
    ///
    /// # Errors
    /// The answer for a task that had ended depends on its end. If the task is `canceled`, the result is a new receipt with the
    /// outcome `already_ended`. If the task completed or failed, the error is [`CancelError::AlreadyEnded`], unless the
    /// canceler stops orphaned work. Other errors: the task is unknown, the canceler refused, or the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the stop.
    pub async fn cancel(&self, id: &TaskId, cause: Cause) -> Result<CancelOutcome, CancelError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.cancel_locally(id, cause).await,
            Coordinator::Cluster(node) => self.cancel_in_cluster(node, id, cause).await,
        }
    }

    /// Returns a receipt with the work that a stop of the task would find now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn preview(&self, id: &TaskId, cause: Cause) -> Result<Receipt, CancelError> {
        if let Some(execution) = self.inner.execution_here(id) {
            execution.scope().find_processes().await;
        }
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.preview_locally(id, cause).await,
            Coordinator::Cluster(node) => self.inner.preview_in_cluster(node, id, cause).await,
        }
    }

    /// Returns a page with at most `limit` tasks after a position. If the filter contains only an owner, the cost
    /// depends only on the page. With any other filter, the call scans all tasks in steps; other requests can run
    /// between two steps.
    ///
    /// In a cluster, the call reads all index entries of the owner; if the filter has no owner, it reads the entries of
    /// all owners. The entries may lack the latest changes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Errors
    /// In a cluster, if the servers do not answer.
    pub async fn list(
        &self,
        filter: &ListFilter,
        after: Option<&TaskPosition>,
        limit: usize,
    ) -> Result<TaskPage, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(self.inner.list_locally(filter, after, limit)),
            Coordinator::Cluster(node) => Ok(node.list(filter, after, limit).await?),
        }
    }

    /// Dead letters of the cluster: tasks during whose executions too many worker processes ended, and wake-ups (hints
    /// that a task needs a worker) that cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(Vec::new()),
            Coordinator::Cluster(node) => Ok(node.dead_letters().await?),
        }
    }

    /// Workers of the cluster that have a lease, which permits them to run tasks.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(Vec::new()),
            Coordinator::Cluster(node) => Ok(node.watch_leases().await?),
        }
    }

    /// True if the execution of the task ran at a worker whose lease has expired, and no other worker has taken the task
    /// over. The answer is as old as the last read of the leases.
    pub fn waits_for_take_over(&self, task: &Task) -> bool {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => false,
            Coordinator::Cluster(node) => node.waits_for_take_over(task),
        }
    }

    /// Resolves when another process has asked this process to accept no more tasks. If this process is not a worker of
    /// a cluster, the future never resolves.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn asked_to_drain(&self) {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => std::future::pending().await,
            Coordinator::Cluster(node) => node.drained().await,
        }
    }

    /// Asks a worker of the cluster to accept no more tasks. Returns false if the worker does not answer.
    ///
    /// # Cancel safety
    /// If the call is dropped, it may nevertheless have sent the request.
    pub async fn drain_worker(&self, worker: &WorkerId) -> Result<bool, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(false),
            Coordinator::Cluster(node) => Ok(node.drain_worker(worker).await?),
        }
    }
}

impl ManagerInner {
    /// The current task. If this process writes all records of the task, also returns the feed of the later records.
    pub(super) async fn current(
        &self,
        id: &TaskId,
    ) -> Result<(Option<Arc<TaskFeed>>, Version, Arc<Task>), ReadTaskError> {
        match &self.coordinator {
            Coordinator::Local { .. } => self.current_locally(id).await,
            Coordinator::Cluster(_) => {
                let (version, task) = self.stored(id).await?;
                Ok((None, version, task))
            }
        }
    }

    /// Continues a task at rest that has no execution here.
    pub(super) async fn wake_at_rest(self: &Arc<Self>, id: &TaskId) -> WakeAdmission {
        match &self.coordinator {
            Coordinator::Local { .. } => self.wake_locally(id),
            Coordinator::Cluster(node) => self.wake_in_cluster(node, id).await,
        }
    }
}
