//! Operations of the manager, by this process alone or by the processes of a cluster together.

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
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.execute_locally(request).await,
            Coordinator::Cluster(node) => self.execute_in_cluster(node, request).await,
        }
    }

    /// Stops a task: its execution, or the task itself if it is at rest. A second stop joins the first. If the
    /// execution ends or rests before the stop reaches it, the stop is decided again on the new state. If the task has
    /// ended, this stops its orphaned work.
    ///
    /// The answer comes within grace and force, plus the time for the write of the end
    /// ([`ending_write_max`](crate::TaskOptions::ending_write_max)). A stop that is decided again takes that long once
    /// more. [`CancelError::Store`] means that the work was stopped but the end is not confirmed; the manager repeats
    /// the write.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the stop.
    pub async fn cancel(&self, id: &TaskId, cause: Cause) -> Result<CancelOutcome, CancelError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.cancel_locally(id, cause).await,
            Coordinator::Cluster(node) => self.cancel_in_cluster(node, id, cause).await,
        }
    }

    /// The items that a stop of the task would find now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn preview(&self, id: &TaskId, cause: Cause) -> Result<Receipt, CancelError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.inner.preview_locally(id, cause),
            Coordinator::Cluster(node) => self.inner.preview_in_cluster(node, id, cause).await,
        }
    }

    /// Returns a page of at most `limit` tasks after a position. A filter by owner alone costs as much as the page.
    /// Every other filter scans all tasks in steps, and other requests can run between the steps.
    ///
    /// In a cluster every list reads the entries of the owner, or of all owners, and may lack the latest changes.
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

    /// Dead letters of the cluster: tasks that ended too many workers, and wake-ups that no version can read.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(Vec::new()),
            Coordinator::Cluster(node) => Ok(node.dead_letters().await?),
        }
    }

    /// Workers of the cluster that have a lease.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(Vec::new()),
            Coordinator::Cluster(node) => Ok(node.watch_leases().await?),
        }
    }

    /// Resolves when another process has asked this one to accept no more tasks. Never resolves unless this process is
    /// a worker of a cluster.
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
    /// A dropped call may have sent the request.
    pub async fn drain_worker(&self, worker: &WorkerId) -> Result<bool, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => Ok(false),
            Coordinator::Cluster(node) => Ok(node.drain_worker(worker).await?),
        }
    }
}

impl ManagerInner {
    /// The current task, with the feed of its later records if this process writes all of them.
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
