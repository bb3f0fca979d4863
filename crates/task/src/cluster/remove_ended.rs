//! Removes ended tasks of a cluster.
//!
//! The entry of a task in the index is removed last. If a process ends in the middle of a removal, the entry stays, and
//! the next pass continues. The entry of a context, which names its owner, always stays: a message of another process
//! may reach the context at the same time.

use std::collections::HashMap;

use allstop_core::{Cause, CauseKind, ContextId, WorkerId};
use allstop_log::{LogError, Version};
use futures::future::try_join_all;

use super::dead_letter::dead_letter_key;
use super::index::IndexedTask;
use super::lease::LeaseState;
use super::node::ClusterNode;
use super::owner_question::{OwnerQuestion, Previewed};
use crate::error::TaskStoreError;
use crate::manager::{ManagerInner, TaskSummary};
use crate::model::Task;
use crate::retention::{ExpiryScan, RemovalReport, TaskRetention};
use crate::task_stream::{read_task, stream_of};

/// Maximum number of contexts whose tasks are removed at the same time. The number is low, because a removal must not
/// delay running tasks.
const REMOVALS_MAX: usize = 8;

/// Tasks of one context that are beyond the limits, from the oldest to the newest.
#[derive(Debug, Default)]
struct ExpiredContext {
    expired: Vec<IndexedTask>,
    /// Number of tasks of the context that are within the limits.
    kept: usize,
}

/// Finds the tasks beyond the limits, by context. The order of the tasks does not matter.
fn expired_tasks(
    mut tasks: Vec<IndexedTask>,
    mut scan: ExpiryScan,
) -> HashMap<ContextId, ExpiredContext> {
    let newest_first = |a: &TaskSummary, b: &TaskSummary| {
        let (a, b) = ((a.updated_at, &a.id), (b.updated_at, &b.id));
        b.cmp(&a)
    };
    tasks.sort_unstable_by(|a, b| newest_first(&a.task, &b.task));
    let mut contexts = HashMap::<_, ExpiredContext>::new();
    for task in tasks {
        let context = contexts.entry(task.task.context_id.clone()).or_default();
        if scan.is_expired(&task.task) {
            context.expired.push(task);
        } else {
            context.kept += 1;
        }
    }
    contexts.retain(|_, context| !context.expired.is_empty());
    for context in contexts.values_mut() {
        context.expired.reverse();
    }
    contexts
}

impl ManagerInner {
    pub(crate) async fn remove_ended_in_cluster(
        &self,
        node: &ClusterNode,
        retention: &TaskRetention,
    ) -> Result<RemovalReport, TaskStoreError> {
        node.watch_leases().await?;
        let tasks = node.indexed_tasks().await?;
        let scan = ExpiryScan::new(retention.limits, self.now());
        let mut expired = expired_tasks(tasks, scan).into_iter();
        let mut sum = RemovalReport::default();
        loop {
            let next = expired.by_ref().take(REMOVALS_MAX);
            let removals = next
                .map(|(context, tasks)| self.remove_in_context(node, retention, context, tasks));
            let reports = try_join_all(removals).await?;
            if reports.is_empty() {
                break;
            }
            for report in reports {
                sum.removed += report.removed;
                sum.in_use += report.in_use;
            }
        }
        Ok(sum)
    }

    async fn remove_in_context(
        &self,
        node: &ClusterNode,
        retention: &TaskRetention,
        context: ContextId,
        tasks: ExpiredContext,
    ) -> Result<RemovalReport, TaskStoreError> {
        let mut report = RemovalReport::default();
        let mut left = tasks.kept + tasks.expired.len();
        for task in &tasks.expired {
            let is_removed = !self.occupancy().1
                && match self.removable(node, retention, task).await? {
                    Some(version) => {
                        (left > 1 || self.forget_context(retention, context.clone()).await)
                            && self.remove_one(node, retention, task, version).await?
                    }
                    None => false,
                };
            if is_removed {
                report.removed += 1;
                left -= 1;
            } else {
                report.in_use += 1;
            }
        }
        Ok(report)
    }

    /// Version at which a task can be deleted. `None` if the task has not ended, or if a process has work of it.
    async fn removable(
        &self,
        node: &ClusterNode,
        retention: &TaskRetention,
        indexed: &IndexedTask,
    ) -> Result<Option<Version>, TaskStoreError> {
        let id = &indexed.task.id;
        if retention.attached(id).is_none() {
            return Ok(None);
        }
        match read_task(&*self.log, id).await {
            // The process that deleted the task has ended before it removed the entry of the index.
            Ok(None) => Ok(Some(Version(0))),
            Ok(Some((version, task))) => {
                let has_ended = task.has_ended() && !task.is_executing;
                let is_idle = has_ended && node.has_no_work_of(&task).await?;
                Ok(is_idle.then_some(version))
            }
            // A worker of a newer version may be able to read the task.
            Err(TaskStoreError::Unreadable { .. } | TaskStoreError::Illegal { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the records of a task, and then its entries. Returns false if the task has changed.
    async fn remove_one(
        &self,
        node: &ClusterNode,
        retention: &TaskRetention,
        indexed: &IndexedTask,
        version: Version,
    ) -> Result<bool, TaskStoreError> {
        let id = &indexed.task.id;
        let Some(attached) = retention.attached(id) else {
            return Ok(false);
        };
        let stream = stream_of(id);
        let streams = [(stream.clone(), version)].into_iter().chain(attached);
        let gone = self.log.delete_unchanged(streams.collect()).await?;
        if !gone.contains(&stream) {
            return Ok(false);
        }
        retention.note_deleted(id);
        node.remove_entries(indexed).await?;
        Ok(true)
    }
}

impl ClusterNode {
    /// True if no worker has work of an ended task. The leases were read before.
    async fn has_no_work_of(&self, task: &Task) -> Result<bool, LogError> {
        let Some(worker) = &task.worker else {
            return Ok(true);
        };
        match self.lease_state(worker) {
            LeaseState::Ended(_) | LeaseState::Absent => Ok(true),
            // The worker may still run work until another worker has ended its lease.
            LeaseState::Overdue { .. } => Ok(false),
            LeaseState::Held { .. } => self.is_idle(worker, task).await,
        }
    }

    /// Asks a worker for its work of a task. Without an answer, the worker may have work.
    async fn is_idle(&self, worker: &WorkerId, task: &Task) -> Result<bool, LogError> {
        let question = OwnerQuestion::Preview {
            task: task.id.clone(),
            cause: Cause::new(CauseKind::Shutdown).detail("retention"),
        };
        let answer: Option<Previewed> = self.ask(worker, &question).await?;
        Ok(matches!(answer, Some(None)))
    }

    /// Removes the dead letter of a task and its entry in the index.
    async fn remove_entries(&self, indexed: &IndexedTask) -> Result<(), LogError> {
        let letter = dead_letter_key(&indexed.task.id);
        if let Some(letter) = self.link().entry(&letter).await? {
            self.link().remove(&letter.key, letter.revision).await?;
        }
        self.remove_indexed(indexed).await
    }
}
