//! The interface through which the engine of an execution calls its manager.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId, WorkerId};
use futures::future::BoxFuture;

use crate::error::TaskStoreError;
use crate::executor::{CancelParts, ExecutorError, TaskParts};
use crate::model::{Task, TaskRecord};
use crate::options::TaskOptions;
use crate::task_stream::TaskStream;
use crate::waker::TaskWaker;

/// The manager that the execution belongs to.
pub(crate) trait ExecutionHost: Send + Sync {
    fn options(&self) -> &TaskOptions;

    /// Parts that all tasks share. `None` if the factory creates parts for each task.
    fn shared_parts(&self) -> Option<&TaskParts>;

    /// Creates the parts of an execution.
    fn create_parts(&self, task: Arc<Task>)
    -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Creates the parts for a stop of a task whose executor does not run.
    fn create_cancel_parts(
        &self,
        task: Arc<Task>,
    ) -> BoxFuture<'static, Result<CancelParts, ExecutorError>>;

    /// Updates the table of this process, or the index of tasks in a cluster, after the store has confirmed an append.
    fn note(&self, stream: &TaskStream);

    /// Removes an execution whose work has ended.
    fn release(&self, stream: &TaskStream);

    /// Removes a message that was not accepted. If the client sends this message again, it counts as a new message.
    fn forget_message(&self, owner: &Arc<str>, message: &MessageId, of: &TaskId);

    /// Releases the slot of an execution, so that the next execution of the queue can get it.
    fn release_slot(&self, owner: &Arc<str>);

    /// True if executions that wait for a slot stay in the store from now on, for the next manager.
    fn is_queue_closed(&self) -> bool;

    /// Notes a task whose execution has left the queue and stays in the store.
    fn keep_waiting(&self, stream: &TaskStream);

    /// False if this worker has lost its lease, which permits it to run tasks.
    fn may_start(&self, worker: Option<&WorkerId>) -> bool;

    /// True if the last execution of the task ran at another worker, and nothing proves that the work of this worker has
    /// ended.
    fn may_have_work_elsewhere(&self, task: &Task, own: Option<&WorkerId>) -> bool;

    /// Appends a record, and announces the record to the worker that now owns the task.
    fn append_announced<'a>(
        &'a self,
        stream: &'a mut TaskStream,
        record: TaskRecord,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// Another worker ends the execution. Keeps the late receipt of the execution until it can be written.
    fn keep_receipt(&self, task: &TaskId, late: TaskRecord);

    /// Creates a waker for the executor of a task.
    fn waker(self: Arc<Self>, task: &TaskId) -> TaskWaker;

    /// Resolves after the manager has shut down. Engines then no longer wait for writes.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
}
