//! The manager as used by the engine of an execution.

use std::sync::Arc;

use allstop_core::{MessageId, TaskId, WorkerId};
use futures::future::BoxFuture;

use crate::error::TaskStoreError;
use crate::executor::{ExecutorError, TaskParts};
use crate::model::{Task, TaskRecord};
use crate::options::TaskOptions;
use crate::task_stream::TaskStream;
use crate::waker::TaskWaker;

/// The manager of an execution.
pub(crate) trait ExecutionHost: Send + Sync {
    fn options(&self) -> &TaskOptions;

    /// Parts that all tasks share; `None` if each task has separate parts.
    fn shared_parts(&self) -> Option<&TaskParts>;

    /// Creates the parts of a task.
    fn create_parts(&self, task: Arc<Task>)
    -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Updates the task's entry after a confirmed append.
    fn note(&self, stream: &TaskStream);

    /// Removes an execution that has no running work any more.
    fn release(&self, stream: &TaskStream);

    /// Removes a message that was not accepted. If the client sends it again, the message counts as new.
    fn forget_message(&self, owner: &Arc<str>, message: &MessageId, of: &TaskId);

    /// Gives the slot of an execution to the next one.
    fn release_slot(&self, owner: &Arc<str>);

    /// False if this worker has lost its lease.
    fn may_start(&self, worker: Option<&WorkerId>) -> bool;

    /// Appends a record, and announces it to the worker that now has the task.
    fn append_announced<'a>(
        &'a self,
        stream: &'a mut TaskStream,
        record: TaskRecord,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// Keeps the late receipt of an execution that another worker ends, until it can be written.
    fn keep_receipt(&self, task: &TaskId, late: TaskRecord);

    /// Creates a waker for the executor of a task.
    fn waker(self: Arc<Self>, task: &TaskId) -> TaskWaker;

    /// Resolves after a shutdown. Engines then stop waiting for writes.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
}
