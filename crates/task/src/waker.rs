//! Waker of a task: an executor continues its task later with it.

use std::fmt;
use std::sync::Arc;

use allstop_core::TaskId;
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Continues a task after the end of a future.
pub(crate) type WakeAfter = dyn Fn(TaskId, BoxFuture<'static, ()>) + Send + Sync;

/// Continues a task at rest without a message. Useful if work of the executor ends while the task waits for input.
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
    /// the message of the previous execution again. If all tasks are stopped, the wait ends.
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
