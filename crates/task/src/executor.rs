//! Parts of a task that the embedding program writes.

use std::fmt;
use std::sync::Arc;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, Receipt, TaskId};
use allstop_scope::Scope;
use futures::future::BoxFuture;

use crate::event_writer::EventWriter;
use crate::execution::PartReceipts;
use crate::model::{Task, TaskEvent, TaskMessage};
use crate::waker::TaskWaker;

/// Does the work of a task and writes its events.
pub trait Executor: Send + Sync {
    /// Runs one execution. It may use [`ExecutionCx::scope`] for everything that a stop has to reach.
    ///
    /// A stop cancels the scope first; after the grace the future is dropped. An executor that returns
    /// [`ExecutorReturn::Finished`] without an event that ends the execution has failed.
    fn execute(&self, cx: ExecutionCx)
    -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>>;

    /// True if an execution of this task, which a crash has interrupted, can be repeated from its records. Otherwise
    /// the task ends with cause `failure`, detail `crash`.
    fn can_resume(&self, task: &Task) -> bool {
        let _ = task;
        false
    }

    /// Items of work outside the scope of its execution that a stop of this task would find now, also after the end of the
    /// task. It must not wait; leave out work that takes time to find. Not called if a factory makes an executor for each task.
    fn preview(&self, task: &TaskId) -> Vec<ReceiptItem> {
        let _ = task;
        Vec::new()
    }
}

/// Context of an execution.
#[derive(Debug, Clone)]
pub struct ExecutionCx {
    /// The task at the start of the execution.
    pub task: Arc<Task>,
    /// Message to answer.
    pub message: Arc<TaskMessage>,
    /// Scope that a stop of the task covers.
    pub scope: Scope,
    /// Writes the events.
    pub events: EventWriter,
    /// Receipts for the receipt of a stop.
    pub receipts: PartReceipts,
    /// W3C trace context of the work (`traceparent`). A stop does not cancel it.
    pub trace: Option<Arc<str>>,
    /// Continues the task later, if the execution ends with a question.
    pub waker: TaskWaker,
    /// True if the execution continues one that a crash has interrupted.
    pub is_resumed: bool,
}

/// Return value of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutorReturn {
    /// All events are written.
    Finished,
    /// Somebody else continues with a clone of the [`EventWriter`]. When the last clone is dropped, all events are
    /// written. The limits of inactivity and of the total time still apply.
    ContinuesElsewhere,
}

/// Error of an executor or another part of the embedding program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorError {
    message: Arc<str>,
    is_crash: bool,
}

impl ExecutorError {
    /// An error with a message for people: lower case, no final period.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            is_crash: false,
        }
    }

    /// The same for work that ended with an earlier process: the cause of the task's failure has the detail `crash`.
    pub fn of_crash(message: impl Into<Arc<str>>) -> Self {
        Self {
            is_crash: true,
            ..Self::new(message)
        }
    }

    /// True for work that ended with an earlier process.
    pub(crate) fn is_crash(&self) -> bool {
        self.is_crash
    }

    /// The message.
    pub fn message(&self) -> &Arc<str> {
        &self.message
    }
}

impl fmt::Display for ExecutorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExecutorError {}

/// Ends a task on request, beside the cancelled scope: for work that a scope does not reach, and for a last event.
pub trait Canceler: Send + Sync {
    /// Called once per stop, in a scope of its own that lives as long as the grace; if no executor runs, as long as grace
    /// and [`FORCE_MAX`](allstop_scope::FORCE_MAX). It is given up then, and without an event that ends the execution
    /// the manager ends the task.
    ///
    /// # Errors
    /// If no execution runs, an error, a panic or a hang refuses the stop and leaves the task as it is. An execution
    /// ends in any case.
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>>;

    /// Stops work that an ended task has left running. Returns the receipt of that stop, or `None` if nothing is left.
    ///
    /// # Cancel safety
    /// A stop that has begun must continue if the future is dropped.
    fn stop_left(&self, task: Arc<Task>, cause: Cause) -> BoxFuture<'static, Option<Arc<Receipt>>> {
        let (_, _) = (task, cause);
        Box::pin(std::future::ready(None))
    }
}

/// Context of a canceler.
#[derive(Debug, Clone)]
pub struct CancelCx {
    /// The task at the time of the stop.
    pub task: Arc<Task>,
    /// Cause of the stop.
    pub cause: Cause,
    /// Scope of the canceler.
    pub scope: Scope,
    /// Writes events of the same execution.
    pub events: EventWriter,
    /// Receipts for the receipt of the stop.
    pub receipts: PartReceipts,
}

/// Sees each event before it is stored.
pub trait Processor: Send + Sync {
    /// Decides about one event. Events come one at a time, in order.
    fn process(&self, event: TaskEvent, task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision>;

    /// Event that ends the execution instead of an error of the executor; `None`: the task fails with the error.
    fn process_error(&self, error: &ExecutorError, task: &Task) -> Option<TaskEvent> {
        let (_, _) = (error, task);
        None
    }
}

/// Decision about an event.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessorDecision {
    /// Store the event.
    Keep(TaskEvent),
    /// Store nothing.
    Drop,
    /// Store this event instead; one that ends the execution ends it.
    Replace(TaskEvent),
    /// Stop the executor and fail the task with this reason.
    Fail(Arc<str>),
}

/// Cleans up after an execution.
pub trait Cleanup: Send + Sync {
    /// Called once after each execution or stop whose parts were made, with the task as it was stored last. While a
    /// stop waits for it, it has the grace.
    ///
    /// In a cluster, a worker that has lost its lease is called, too, and another worker may run the task already: clean
    /// up what this process holds, such as locks and folders of its own, and nothing that the task's next worker uses.
    fn clean_up(&self, task: Arc<Task>) -> BoxFuture<'static, ()>;
}

/// Makes the parts of a task at the start of each execution.
pub trait TaskPartsFactory: Send + Sync {
    /// Makes the parts.
    ///
    /// # Errors
    /// An error fails the task. If no execution runs, it refuses the stop.
    fn create(&self, task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Parts for all tasks; then [`create`](Self::create) is not called. Asked for once, when a manager opens.
    fn shared_parts(&self) -> Option<TaskParts> {
        None
    }
}

/// Parts of one task.
#[derive(Clone)]
pub struct TaskParts {
    /// Does the work.
    pub executor: Arc<dyn Executor>,
    /// Ends the work on request.
    pub canceler: Option<Arc<dyn Canceler>>,
    /// Sees each event.
    pub processor: Option<Arc<dyn Processor>>,
    /// Cleans up.
    pub cleanup: Option<Arc<dyn Cleanup>>,
}

impl TaskParts {
    /// Only an executor.
    pub fn of(executor: impl Executor + 'static) -> Self {
        Self {
            executor: Arc::new(executor),
            canceler: None,
            processor: None,
            cleanup: None,
        }
    }
}

impl fmt::Debug for TaskParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskParts").finish_non_exhaustive()
    }
}

/// The same parts for every task.
impl TaskPartsFactory for TaskParts {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        Box::pin(std::future::ready(Ok(self.clone())))
    }

    fn shared_parts(&self) -> Option<TaskParts> {
        Some(self.clone())
    }
}
