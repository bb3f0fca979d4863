//! Waker of a task, with which an executor continues the task later.

use std::fmt;
use std::sync::Arc;

use allstop_core::TaskId;
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Continues a task after the end of a future.
pub(crate) type WakeAfter = dyn Fn(TaskId, BoxFuture<'static, ()>) + Send + Sync;

/// Starts a new execution of a task that waits for input, without a new message. Useful if work of the executor ends
/// during this wait.
#[derive(Clone)]
pub struct TaskWaker {
    task: TaskId,
    wake_after: Arc<WakeAfter>,
}

impl TaskWaker {
    pub(crate) fn new(task: TaskId, wake_after: Arc<WakeAfter>) -> Self {
        Self { task, wake_after }
    }

    /// Calls the executor again after the future resolves, if the task is at rest at that time. The new execution gets
    /// the message of the previous execution again. A stop of all tasks ends the wait for the future.
    pub fn wake_after(self, ended: impl Future<Output = ()> + Send + 'static) {
        (self.wake_after)(self.task, ended.boxed());
    }
}

impl fmt::Debug for TaskWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWaker")
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}
