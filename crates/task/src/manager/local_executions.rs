//! Executions of this process in a cluster. The process reads the state of a task from the log before it takes the task
//! over.

use std::sync::Arc;

use allstop_core::{Cause, Receipt, TaskId, WorkerId};
use allstop_log::Version;

use super::ManagerInner;
use crate::execution::{Execution, ExecutionJob};
use crate::feed::TaskFeed;
use crate::model::Task;

impl ManagerInner {
    /// The execution of a task in this process.
    pub(crate) fn execution_here(&self, id: &TaskId) -> Option<Arc<Execution>> {
        self.table.lock().execution(id)
    }

    /// The feed of a task that has an execution in this process.
    pub(crate) fn feed_here(&self, id: &TaskId) -> Option<Arc<TaskFeed>> {
        let mut table = self.table.lock();
        table.execution(id)?;
        table.feed(id)
    }

    /// Executions of a worker in this process.
    pub(crate) fn executions_of(&self, worker: &WorkerId) -> Vec<Arc<Execution>> {
        let mut executions = self.table.lock().executions();
        executions.retain(|execution| execution.worker() == Some(worker));
        executions
    }

    /// Number of executions in this process. The flag is true if the process accepts no more executions.
    pub(crate) fn occupancy(&self) -> (usize, bool) {
        let table = self.table.lock();
        let is_draining = table.is_draining || table.is_closed;
        (table.executions().len(), is_draining)
    }

    /// Resolves when this process accepts no more executions.
    pub(crate) async fn draining(&self) {
        let mut is_draining = self.is_draining.subscribe();
        // The sender is part of this manager, so the wait cannot fail.
        let _set = is_draining.wait_for(|is_draining| *is_draining).await;
    }

    /// Takes a task that needs a worker. The task was read at this version; if it has changed since, the log refuses
    /// the first append. If an execution of the task already runs here, this execution reads the new records. `None` if
    /// this process takes no more tasks.
    pub(crate) fn take(
        self: &Arc<Self>,
        version: Version,
        task: &Arc<Task>,
        worker: Option<WorkerId>,
    ) -> Option<Arc<Execution>> {
        let mut table = self.table.lock();
        if let Some(execution) = table.execution(&task.id) {
            execution.ask_to_look();
            return Some(execution);
        }
        // A worker may run tasks only while it holds its lease. The loss of the lease stops all executions in the
        // table, so no execution may enter the table after the loss.
        if !self.coordinator.may_start(worker.as_ref()) {
            return None;
        }
        let stop = task.stop_requested.clone().filter(|_| !task.is_executing);
        // Also a process that drains ends tasks whose stop is requested.
        let is_refused = table.is_draining && task.stop_requested.is_none();
        if table.is_closed || is_refused {
            return None;
        }
        let scopes = self
            .new_execution(&task.id, task.trace.clone(), worker)
            .ok()?;
        let execution = Arc::clone(&scopes.execution);
        let feed = Arc::new(TaskFeed::default());
        feed.set_read(version, task);
        let (job, slot) = if let Some(cause) = stop {
            (ExecutionJob::Cancel(cause), None)
        } else {
            // The task is already accepted, so its request must not be refused, even if the queue is full.
            let answer = table.slots.request_always(&task.owner);
            (ExecutionJob::FromLog, Some((answer, &task.owner)))
        };
        table.enter_taken(task, Arc::clone(&execution), &feed);
        // No client waits for this acceptance: the client received its answer when the message was stored.
        drop(self.start_engine(table, scopes, &task.id, feed, job, slot));
        Some(execution)
    }

    /// True if this process may end a task that is at rest and has no worker.
    pub(crate) fn may_end(&self, id: &TaskId) -> bool {
        let table = self.table.lock();
        !table.is_closed && table.execution(id).is_none()
    }

    /// Starts an execution that ends a task at rest. The task was read at this version and has no worker.
    pub(crate) fn stop_at_rest(
        self: &Arc<Self>,
        version: Version,
        task: &Arc<Task>,
        cause: &Cause,
    ) -> Option<Arc<Execution>> {
        let mut table = self.table.lock();
        if table.is_closed || table.execution(&task.id).is_some() {
            return None;
        }
        let scopes = self.new_execution(&task.id, None, None).ok()?;
        let execution = Arc::clone(&scopes.execution);
        let feed = Arc::new(TaskFeed::default());
        feed.set_read(version, task);
        table.enter_taken(task, Arc::clone(&execution), &feed);
        let job = ExecutionJob::Cancel(cause.clone());
        drop(self.start_engine(table, scopes, &task.id, feed, job, None));
        Some(execution)
    }

    /// Work that a stop would find here: the work of an execution, or orphaned work (work that still runs after the end
    /// of the task). `None` if this process has no work of the task.
    pub(crate) fn preview_here(&self, id: &TaskId, cause: Cause) -> Option<Receipt> {
        let execution = self.execution_here(id);
        let running = execution
            .as_ref()
            .map(|execution| execution.scope().running());
        let left = self.previewed_by_executor(id);
        if running.is_none() && left.is_empty() {
            return None;
        }
        let items = running.into_iter().flatten().chain(left).collect();
        Some(Receipt::of_preview(self.stop_info(id, cause), items))
    }
}
