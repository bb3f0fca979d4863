//! Parts of a task that the embedding program implements.

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
    /// Runs one execution. The executor can use [`ExecutionCx::scope`] for all work that a stop must reach.
    ///
    /// A stop first cancels the scope, and drops the future after the grace. An executor has failed if it returns
    /// [`ExecutorReturn::Finished`] without an event that ends the execution.
    fn execute(&self, cx: ExecutionCx)
    -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>>;

    /// True if an execution of this task that a crash has interrupted can be repeated from its records. Otherwise the
    /// task ends with cause `failure`, detail `crash`.
    fn can_resume(&self, task: &Task) -> bool {
        let _ = task;
        false
    }

    /// Items of work outside the execution's scope that a stop of this task would find now, also after the end of the
    /// task. The method must not block, and omits work that takes time to find. Not called if a factory creates an
    /// executor for each task.
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
    /// Collects receipts that the receipt of a stop will include.
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
    /// Other code continues with a clone of the [`EventWriter`]. All events are written when the last clone is dropped.
    /// The limits of inactivity and of total time still apply.
    ContinuesElsewhere,
}

/// Error of an executor or another part of the embedding program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorError {
    message: Arc<str>,
    is_crash: bool,
}

impl ExecutorError {
    /// Creates an error with a message for people: lower case, no final period.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            is_crash: false,
        }
    }

    /// Like [`new`](Self::new), but for work that ended with an earlier process: the cause of the task's failure has
    /// the detail `crash`.
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

/// Ends a task on request, in addition to the cancelled scope: for work that a scope does not reach, and for a last
/// event.
pub trait Canceler: Send + Sync {
    /// Called once per stop, in a separate scope with the duration of the grace. If no executor runs, the duration is
    /// grace plus [`FORCE_MAX`](allstop_scope::FORCE_MAX). After this time the call is dropped. The manager ends the
    /// task if no event has ended the execution.
    ///
    /// # Errors
    /// If no execution runs, an error, a panic or a hang refuses the stop and leaves the task unchanged. A running
    /// execution ends in any case.
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>>;

    /// Stops orphaned work of an ended task. Returns the receipt of that stop, or `None` if no work remains.
    ///
    /// # Cancel safety
    /// A stop that has begun must continue if the future is dropped.
    fn stop_orphans(
        &self,
        task: Arc<Task>,
        cause: Cause,
    ) -> BoxFuture<'static, Option<Arc<Receipt>>> {
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
    /// Collects receipts that the receipt of the stop will include.
    pub receipts: PartReceipts,
}

/// Checks each event before it is stored.
pub trait Processor: Send + Sync {
    /// Decides about one event. Events come one at a time, in order.
    fn process(&self, event: TaskEvent, task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision>;

    /// Event that ends the execution instead of an error of the executor. `None` if the task is to fail with the error.
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
    /// Store this event instead. If it ends the execution, the execution ends.
    Replace(TaskEvent),
    /// Stop the executor and fail the task with this reason.
    Fail(Arc<str>),
}

/// Cleans up after an execution.
pub trait Cleanup: Send + Sync {
    /// Called once after each execution or stop whose parts were created, with the last stored task. If a stop waits
    /// for the clean-up, the limit is the grace.
    ///
    /// In a cluster, a worker that has lost its lease also calls this method, and another worker may run the task
    /// already. Clean up the resources of this process, such as its locks and folders, and nothing that the task's next
    /// worker uses.
    fn clean_up(&self, task: Arc<Task>) -> BoxFuture<'static, ()>;
}

/// Creates the parts of a task at the start of each execution.
pub trait TaskPartsFactory: Send + Sync {
    /// Creates the parts.
    ///
    /// # Errors
    /// An error fails the task. If no execution runs, the error refuses the stop.
    fn create(&self, task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Parts that all tasks share. If there are shared parts, [`create`](Self::create) is not called. Called once, when
    /// a manager opens.
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
    /// Checks each event.
    pub processor: Option<Arc<dyn Processor>>,
    /// Cleans up.
    pub cleanup: Option<Arc<dyn Cleanup>>,
}

impl TaskParts {
    /// Creates parts with only an executor.
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

/// Every task gets the same parts.
impl TaskPartsFactory for TaskParts {
    fn create(&self, _task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>> {
        Box::pin(std::future::ready(Ok(self.clone())))
    }

    fn shared_parts(&self) -> Option<TaskParts> {
        Some(self.clone())
    }
}
