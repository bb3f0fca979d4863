//! Opens a store. Loads every task, and continues or ends each interrupted execution.

use std::sync::Arc;

use allstop_core::{TaskId, error_chain};
use allstop_log::{LockAttempt, Log, StreamName, Version};
use allstop_scope::{NotStarted, Scope, ScopeOptions};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::coordinator::Coordinator;
use super::slots::ExecutionSlots;
use super::table::TaskTable;
use super::{ManagerInner, TaskManager};
use crate::cluster::{ClusterNode, ClusterOptions};
use crate::error::TaskStoreError;
use crate::execution::ExecutionJob;
use crate::executor::TaskPartsFactory;
use crate::feed::TaskFeed;
use crate::model::Task;
use crate::options::TaskOptions;
use crate::stored_task::{StoredTask, UnreadableTask, is_of_client, read_stored};
use crate::task_stream::STREAM_PREFIX;

/// Name of the stream whose lock the manager holds. Only the holder of this lock may manage the tasks of the store.
const MANAGER_STREAM: &str = "tasks";

/// Maximum number of tasks that are read at the same time. This number is high enough to keep a store busy, and limits
/// the memory.
const READS_MAX: usize = 16;

impl TaskManager {
    /// Opens the tasks of a store, and continues or ends each execution that a crash has interrupted. Work runs in
    /// scopes below `root`.
    ///
    /// A task whose records cannot be read does not prevent the work on the others. Such a task takes no message and no
    /// stop, and its records stay unchanged.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is opened.
    ///
    /// # Errors
    /// If another process manages the tasks of the store, or the store fails.
    pub async fn open(
        log: Arc<dyn Log>,
        root: Scope,
        factory: Arc<dyn TaskPartsFactory>,
        options: TaskOptions,
    ) -> Result<Self, TaskStoreError> {
        let lock = match log.try_lock(&StreamName::new(MANAGER_STREAM)).await? {
            LockAttempt::Locked(lock) => lock,
            LockAttempt::HeldBy(owner) => return Err(TaskStoreError::InUse(owner)),
        };
        let mut table = TaskTable::new(ExecutionSlots::new(&options));
        // Only interrupted tasks stay in memory, because all tasks together may need more memory than the machine has.
        let mut interrupted = Vec::new();
        let mut reads = Box::pin(read_all(&log).await?);
        while let Some(stored) = reads.try_next().await? {
            let (version, task) = match stored {
                StoredTask::Whole(version, task) => (version, task),
                StoredTask::Unreadable(part) => {
                    enter_unreadable(&mut table, part);
                    continue;
                }
            };
            let feed = Arc::new(TaskFeed::default());
            enter_stored(&mut table, version, &task, &feed);
            if task.is_executing || task.awaits_execution {
                feed.set_read(version, &task);
                interrupted.push((task, feed));
            }
        }
        drop(reads);
        let coordinator = Coordinator::Local { _lock: lock };
        let inner = ManagerInner::new(log, root, factory, options, table, coordinator);
        for (task, feed) in interrupted {
            inner.continue_after_crash(&task, feed);
        }
        Ok(Self { inner })
    }
}

impl ManagerInner {
    fn continue_after_crash(self: &Arc<Self>, task: &Task, feed: Arc<TaskFeed>) {
        let mut table = self.table.lock();
        // If the root scope is stopped, no execution starts. The next manager that opens the store finds the task
        // again.
        let Ok(scopes) = self.new_execution(&task.id, task.trace.clone(), None) else {
            return;
        };
        // The task is already accepted, so its request must not be refused, even if the queue is full.
        let answer = table.slots.request_always(&task.owner);
        table.enter(&task.id, Arc::clone(&scopes.execution));
        let (job, slot) = (ExecutionJob::FromLog, Some((answer, &task.owner)));
        // No client waits for this acceptance: the client received its answer before the crash.
        drop(self.start_engine(table, scopes, &task.id, feed, job, slot));
    }
}

impl TaskManager {
    /// Joins a cluster of managers. Work runs in scopes below `root`. No task is read here: each task that needs a
    /// worker has a wake-up, a stored hint that brings a worker to the task.
    ///
    /// # Errors
    /// If `root` or the scope of the node is stopped.
    pub fn join(
        log: Arc<dyn Log>,
        cluster: ClusterOptions,
        root: Scope,
        factory: Arc<dyn TaskPartsFactory>,
        options: TaskOptions,
    ) -> Result<Self, NotStarted> {
        let parent = cluster.scope.as_ref().unwrap_or(&root);
        let scope = parent.child("cluster", ScopeOptions::default())?;
        let requests = root.child("requests", ScopeOptions::default())?;
        let node = Arc::new(ClusterNode::new(cluster, scope, requests));
        // In a cluster, the limit per owner applies to all workers together. The owner slots, entries that all workers
        // share, enforce this limit.
        let of_this_worker = TaskOptions {
            running_per_owner_max: None,
            ..options.clone()
        };
        let table = TaskTable::new(ExecutionSlots::new(&of_this_worker));
        let coordinator = Coordinator::Cluster(Arc::clone(&node));
        let inner = ManagerInner::new(log, root, factory, options, table, coordinator);
        inner.start_node(&node)?;
        Ok(Self { inner })
    }
}

/// Enters a task, with the messages that must not start it again.
fn enter_stored(table: &mut TaskTable, version: Version, task: &Task, feed: &Arc<TaskFeed>) {
    table.note(version, task, feed);
    for message in task.history.iter().filter(|it| is_of_client(it)) {
        table.remember_message(&task.owner, &message.id, &task.id, task.created_at);
    }
}

/// Enters the readable part of a task, so that lists name the task and a repeated message starts no execution.
fn enter_unreadable(table: &mut TaskTable, part: UnreadableTask) {
    let reason = error_chain(&part.error);
    tracing::warn!(task = %part.id, reason, "a task cannot be read; its records stay unchanged");
    if let Some((version, task)) = part.before {
        enter_stored(table, version, &task, &Arc::default());
        for message in &part.later_messages {
            table.remember_message(&task.owner, message, &task.id, task.created_at);
        }
    }
    table.set_unreadable(part.id, part.error);
}

/// Reads all tasks of the store, and returns them as a stream.
async fn read_all(
    log: &Arc<dyn Log>,
) -> Result<impl Stream<Item = Result<StoredTask, TaskStoreError>>, TaskStoreError> {
    let streams = log.list(STREAM_PREFIX).await?;
    let ids = streams.into_iter().filter_map(|(name, _)| {
        let id = name.as_str().strip_prefix(STREAM_PREFIX)?;
        Some(TaskId::new(id))
    });
    Ok(stream::iter(ids)
        .map(move |id| async move { read_stored(&**log, &id).await })
        .buffer_unordered(READS_MAX)
        .try_filter_map(|read| async move { Ok(read) }))
}
