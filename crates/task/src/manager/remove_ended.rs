//! Removes ended tasks of a store that this process manages alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{ContextId, TaskId};
use allstop_log::{LockAttempt, StreamLock, StreamName};
use futures::{StreamExt as _, stream};
use tokio::time::sleep;

use super::coordinator::Coordinator;
use super::read::SCAN_LEN_MAX;
use super::table::{RemovedTask, TaskRemoval};
use super::{ManagerInner, TaskManager};
use crate::error::TaskStoreError;
use crate::execution::user_code;
use crate::retention::{ExpiryScan, RemovalReport, RetentionLimits, TaskRetention};
use crate::task_stream::stream_of;

/// Maximum number of tasks that are deleted in one transaction of the store. Such a transaction takes a few
/// milliseconds, and the appends of running tasks wait during this time.
const BATCH_LEN_MAX: usize = 64;

/// Maximum number of contexts whose data is deleted at the same time.
const FORGET_MAX: usize = 4;

/// Time between two checks of the number of tasks. A check reads only memory.
const COUNT_EVERY: Duration = Duration::from_mins(1);

/// Time between two checks in a cluster, where a check reads all entries of the index.
const CLUSTER_COUNT_EVERY: Duration = Duration::from_mins(10);

/// Stream whose lock decides which process of a cluster removes the ended tasks.
const RETENTION_STREAM: &str = "retention";

impl TaskManager {
    /// Removes ended tasks beyond the limits, now and then again and again, for as long as the future is polled. Calls
    /// `on_pass` after each pass. In a cluster, one process at a time removes tasks.
    ///
    /// # Cancel safety
    /// Like [`remove_ended`](Self::remove_ended).
    pub async fn keep_removing_ended(
        &self,
        retention: &TaskRetention,
        on_pass: impl Fn(&RemovalReport),
    ) {
        let every = match &self.inner.coordinator {
            Coordinator::Local { .. } => COUNT_EVERY,
            Coordinator::Cluster(_) => CLUSTER_COUNT_EVERY,
        };
        let every = retention.limits.pass_every(every);
        let mut turn = None;
        while !self.inner.occupancy().1 {
            if self.takes_turn(&mut turn).await {
                match self.remove_ended(retention).await {
                    Ok(report) => on_pass(&report),
                    Err(error) => tracing::warn!(%error, "ended tasks are removed later"),
                }
            }
            sleep(every).await;
        }
    }

    /// True if this process removes the ended tasks. The lock only saves work: a task that two processes remove is
    /// removed once.
    async fn takes_turn(&self, turn: &mut Option<StreamLock>) -> bool {
        if matches!(self.inner.coordinator, Coordinator::Local { .. }) || turn.is_some() {
            return true;
        }
        let attempt = self.inner.log.try_lock(&StreamName::new(RETENTION_STREAM));
        match attempt.await {
            Ok(LockAttempt::Locked(lock)) => *turn = Some(lock),
            Ok(LockAttempt::HeldBy(_)) => {}
            Err(error) => tracing::debug!(%error, "ended tasks are removed later"),
        }
        turn.is_some()
    }

    /// Removes the ended tasks beyond the limits once. A removed task no longer exists for clients. The store deletes
    /// its records and the streams of its attachments, and a message that repeats one of its messages starts a new task.
    ///
    /// # Cancel safety
    /// If the future is dropped, the store contains some of the tasks beyond the limits. A task is stored completely or
    /// not at all. Of the last tasks in progress, some may no longer exist for clients, and are removed after the next
    /// start.
    ///
    /// # Errors
    /// If the store fails. Tasks that it has not deleted still exist.
    pub async fn remove_ended(
        &self,
        retention: &TaskRetention,
    ) -> Result<RemovalReport, TaskStoreError> {
        match &self.inner.coordinator {
            Coordinator::Local { .. } => self.inner.remove_ended_locally(retention).await,
            Coordinator::Cluster(node) => self.inner.remove_ended_in_cluster(node, retention).await,
        }
    }
}

impl ManagerInner {
    async fn remove_ended_locally(
        &self,
        retention: &TaskRetention,
    ) -> Result<RemovalReport, TaskStoreError> {
        let mut report = RemovalReport::default();
        let expired = self.expired_tasks(retention.limits);
        for batch in expired.chunks(BATCH_LEN_MAX) {
            if self.occupancy().1 {
                break;
            }
            let removed = self.remove_batch(retention, batch).await?;
            report.removed += removed;
            report.in_use += batch.len() - removed;
        }
        if report.removed > 0 {
            self.table.lock().shrink();
        }
        Ok(report)
    }

    /// Tasks beyond the limits, from the oldest to the newest. Other requests can run between two steps of the scan.
    fn expired_tasks(&self, limits: RetentionLimits) -> Vec<TaskId> {
        let mut scan = ExpiryScan::new(limits, self.now());
        let (mut expired, mut position) = (Vec::new(), None);
        loop {
            let table = self.table.lock();
            let mut last = None;
            for task in table.newest_first(position.as_ref()).take(SCAN_LEN_MAX) {
                last = Some((task.updated_at, task.id.clone()));
                if scan.is_expired(task) {
                    expired.push(task.id.clone());
                }
            }
            position = last;
            if position.is_none() {
                break;
            }
        }
        expired.reverse();
        expired
    }

    /// Removes these tasks, except those in use. Returns the number of removed tasks.
    async fn remove_batch(
        &self,
        retention: &TaskRetention,
        batch: &[TaskId],
    ) -> Result<usize, TaskStoreError> {
        let idle = batch.iter().filter(|id| {
            retention.attached(id).is_some() && self.previewed_by_executor(id).is_empty()
        });
        let idle: Vec<_> = idle.collect();
        let (mut taken, mut last) = (Vec::new(), Vec::new());
        {
            let mut table = self.table.lock();
            for id in idle {
                match table.take_out(id, None) {
                    TaskRemoval::Removed(task) => taken.push(task),
                    TaskRemoval::LastOfContext(context) => last.push((id, context)),
                    TaskRemoval::InUse => {}
                }
            }
        }
        let forgotten = last.into_iter().map(|(id, context)| async move {
            let is_forgotten = self.forget_context(retention, context.clone()).await;
            is_forgotten.then_some((id, context))
        });
        let forgotten = stream::iter(forgotten.collect::<Vec<_>>()).buffer_unordered(FORGET_MAX);
        let forgotten: Vec<_> = forgotten.collect().await;
        {
            let mut table = self.table.lock();
            for (id, context) in forgotten.into_iter().flatten() {
                if let TaskRemoval::Removed(task) = table.take_out(id, Some(&context)) {
                    taken.push(task);
                }
            }
        }
        self.delete_taken(retention, taken).await
    }

    /// Deletes the data of a context. Returns false if the data must stay for now.
    pub(crate) async fn forget_context(
        &self,
        retention: &TaskRetention,
        context: ContextId,
    ) -> bool {
        let (contexts, id) = (Arc::clone(&retention.contexts), context.clone());
        let on_panic = self.options.on_panic.as_ref();
        let max = self.options.user_code_max;
        let forgotten =
            user_code::run(&self.root, "contexts", max, on_panic, |_scope| async move {
                contexts.forget(id).await
            });
        match forgotten.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, %context, "a context stays with its last task");
                false
            }
            Err(error) => {
                tracing::warn!(%error, %context, "a context stays with its last task");
                false
            }
        }
    }

    /// Deletes tasks in the store that were taken out of the table. Puts back the tasks that the store does not delete.
    async fn delete_taken(
        &self,
        retention: &TaskRetention,
        taken: Vec<RemovedTask>,
    ) -> Result<usize, TaskStoreError> {
        let mut streams = Vec::with_capacity(taken.len());
        let mut deleting: HashMap<TaskId, RemovedTask> = HashMap::with_capacity(taken.len());
        for task in taken {
            // A client may have changed an attachment since the first check.
            match retention.attached(&task.id) {
                Some(attached) => {
                    streams.push((stream_of(&task.id), task.version));
                    streams.extend(attached);
                    deleting.insert(task.id.clone(), task);
                }
                None => self.table.lock().put_back(task),
            }
        }
        let deleted = self.log.delete_unchanged(streams).await;
        let gone: HashSet<StreamName> = match &deleted {
            Ok(gone) => gone.iter().cloned().collect(),
            Err(_) => HashSet::new(),
        };
        let mut removed = 0;
        for (id, task) in deleting {
            if gone.contains(&stream_of(&id)) {
                self.table.lock().complete_removal(&task);
                retention.note_deleted(&id);
                removed += 1;
            } else {
                self.table.lock().put_back(task);
            }
        }
        deleted?;
        Ok(removed)
    }
}
