//! The manager of an execution, as its engine sees it.

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

    /// Parts of every task. `None`: each task has its own.
    fn shared_parts(&self) -> Option<&TaskParts>;

    /// Makes the parts of a task.
    fn create_parts(&self, task: Arc<Task>)
    -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Notes the task after a confirmed append.
    fn note(&self, stream: &TaskStream);

    /// Removes an execution of which nothing runs any more.
    fn release(&self, stream: &TaskStream);

    /// Forgets a message that was not accepted: sent again, it is new.
    fn forget_message(&self, owner: &Arc<str>, message: &MessageId, of: &TaskId);

    /// Gives the slot of an execution to the next one.
    fn release_slot(&self, owner: &Arc<str>);

    /// False if this worker has lost its lease.
    fn may_start(&self, worker: Option<&WorkerId>) -> bool;

    /// Appends a record that is announced to the worker which has the task now.
    fn append_announced<'a>(
        &'a self,
        stream: &'a mut TaskStream,
        record: TaskRecord,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// Keeps the late receipt of an execution that another worker ends, until it can be written.
    fn keep_receipt(&self, task: &TaskId, late: TaskRecord);

    /// A handle for the executor of a task.
    fn waker(self: Arc<Self>, task: &TaskId) -> TaskWaker;

    /// Resolves when a shutdown has ended: no write is waited for any more.
    fn shut_down(&self) -> BoxFuture<'_, ()>;
}
