//! Parts of a task that the embedding program implements.

use std::fmt;
use std::sync::Arc;

use allstop_core::receipt::ReceiptItem;
use allstop_core::{Cause, ContextId, Extent, Receipt, TaskId, TraceContext};
use allstop_scope::{Scope, StopRequest};
use futures::future::BoxFuture;

use crate::error::TaskStoreError;
use crate::event_writer::EventWriter;
use crate::execution::PartReceipts;
use crate::live_text_writer::LiveTextWriter;
use crate::model::{Task, TaskEvent, TaskMessage};
use crate::waker::TaskWaker;

/// Does the work of a task and writes its events.
pub trait Executor: Send + Sync {
    /// Runs one execution. The executor can use [`ExecutionCx::scope`] for all work that a stop must reach.
    ///
    /// A stop first cancels the scope. After the grace (the time in which the work can end by itself), the stop drops
    /// the future. If an executor returns [`ExecutorReturn::Finished`] and no event has ended the execution, the
    /// execution has failed.
    fn execute(&self, cx: ExecutionCx)
    -> BoxFuture<'static, Result<ExecutorReturn, ExecutorError>>;

    /// Checks the id that a client has chosen for the context of its message. The manager refuses the message with this
    /// error before a task exists. The method must not block. If a factory creates an executor for each task, the method
    /// is not called.
    ///
    /// # Errors
    /// Returns an error that names the permitted ids. By default, all ids are permitted.
    fn check_context(&self, context: &ContextId) -> Result<(), ExecutorError> {
        let _ = context;
        Ok(())
    }

    /// True if the executor can execute this task again from its records after a crash has interrupted an execution. If
    /// false, such a task fails with the cause `failure` and the detail `crash`.
    fn can_resume(&self, task: &Task) -> bool {
        let _ = task;
        false
    }

    /// True if the worker of this task can shut down and hand the running execution over to another worker of its
    /// cluster. The scope is stopped first, with the cause `shutdown`. The other worker executes the task again, with
    /// [`ExecutionCx::is_resumed`]. If false, the task is cancelled. The method must not block. By default, the answer of
    /// [`can_resume`](Self::can_resume).
    fn can_hand_over(&self, task: &Task) -> bool {
        self.can_resume(task)
    }

    /// Work that a stop of this task would find now, in addition to the work in the scope of the execution. The manager
    /// may also call this method after the end of the task. The method must not block, so it omits work that takes time
    /// to find. If a factory creates an executor for each task, the method is not called.
    fn preview(&self, task: &TaskId) -> Vec<ReceiptItem> {
        let _ = task;
        Vec::new()
    }

    /// True if work may still run for a task whose execution has ended: a turn that waits for an answer, or work in the
    /// background. A closing worker of a cluster without such work reports that nothing of its tasks runs. The method must
    /// not block. If a factory creates an executor for each task, such work is assumed.
    fn has_left_work(&self) -> bool {
        false
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
    /// Writes text of an artifact for display, while the artifact is not complete. The text is not stored.
    pub live_text: LiveTextWriter,
    /// Collects receipts of work outside the scope. The receipt of a stop will include these receipts.
    pub receipts: PartReceipts,
    /// W3C trace context of the work (`traceparent`). A stop does not change the trace context.
    pub trace: Option<TraceContext>,
    /// Continues the task later. Useful if the execution ends with a question.
    pub waker: TaskWaker,
    /// True if this execution continues the work of an earlier execution, which a crash has interrupted or another worker
    /// has handed over.
    pub is_resumed: bool,
    pub(crate) execution_scope: Scope,
}

impl ExecutionCx {
    /// Stops the execution with this cause, like a stop of the task. The cause determines the final state, and the
    /// receipt lists all work of the execution. For limits that the executor itself imposes. If a stop already covers
    /// the execution, the call has no effect.
    ///
    /// The executor must not wait for the receipt, because the stop waits for the executor.
    pub fn stop(&self, cause: Cause) {
        let request = StopRequest::new(Extent::Subtree, cause);
        drop(self.execution_scope.stop(request));
    }
}

/// Return value of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecutorReturn {
    /// All events are written.
    Finished,
    /// Other code continues with a clone of the [`EventWriter`]. The events are complete when the last clone is
    /// dropped. The limits for inactivity and for the total time still apply.
    ContinuesElsewhere,
}

/// Error of an executor or another part of the embedding program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorError {
    message: Arc<str>,
    is_crash: bool,
}

impl ExecutorError {
    /// Creates an error with a message for people. The message is in lower case and has no final period.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            is_crash: false,
        }
    }

    /// Like [`new`](Self::new), but for work that ended because an earlier process ended. The cause of the task's
    /// failure then has the detail `crash`.
    pub fn of_crash(message: impl Into<Arc<str>>) -> Self {
        Self {
            is_crash: true,
            ..Self::new(message)
        }
    }

    /// True if the work ended because an earlier process ended.
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

/// Takes part in a stop of a task. The stop itself cancels the scope of the execution. A canceler ends work that this
/// scope does not contain, and can write a last event.
pub trait Canceler: Send + Sync {
    /// Called once per stop, in a separate scope. The time limit of the call is the grace; if no executor runs, it is
    /// the grace plus [`FORCE_MAX`](allstop_scope::FORCE_MAX). After this time the call is dropped. If no event has
    /// ended the execution by then, the manager ends the task.
    ///
    /// # Errors
    /// If no execution runs and the canceler returns an error, panics or hangs, the stop is refused and the task does
    /// not change. If an execution runs, it ends in all cases.
    fn cancel(&self, cx: CancelCx) -> BoxFuture<'static, Result<(), ExecutorError>>;

    /// Receipt items for orphaned work: work of an ended task that still runs. [`stop_orphans`](Self::stop_orphans)
    /// would stop this work.
    ///
    /// # Cancel safety
    /// Dropping the future must change nothing.
    fn preview_orphans(&self, task: Arc<Task>) -> BoxFuture<'static, Vec<ReceiptItem>> {
        drop(task);
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Stops orphaned work: work of an ended task that still runs. Returns the receipt of this stop. `None` if no work
    /// remains.
    ///
    /// # Cancel safety
    /// If the future is dropped, a stop that has begun must continue.
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
    /// Writes events of the stopped execution.
    pub events: EventWriter,
    /// Collects receipts of work outside the scope. The receipt of the stop will include these receipts.
    pub receipts: PartReceipts,
    /// True if a crash has interrupted the execution of the task, and no executor has continued it. The log of the
    /// executor may contain work that the task does not name.
    pub is_interrupted: bool,
}

/// Checks each event before it is stored.
pub trait Processor: Send + Sync {
    /// Decides about one event. The manager calls this method for one event after the other, in order.
    fn process(&self, event: TaskEvent, task: Arc<Task>) -> BoxFuture<'static, ProcessorDecision>;

    /// Decides about an error of the executor. With `Ok`, the execution ends with this event instead; an event that does
    /// not end the execution is stored before the error. With `Err`, the task fails with the returned error. By default,
    /// the task fails with the error of the executor.
    fn process_error(
        &self,
        error: ExecutorError,
        task: Arc<Task>,
    ) -> BoxFuture<'static, Result<TaskEvent, ExecutorError>> {
        drop(task);
        Box::pin(std::future::ready(Err(error)))
    }
}

/// Decision about an event.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ProcessorDecision {
    /// Store the event.
    Keep(TaskEvent),
    /// Store nothing.
    Drop,
    /// Store this event instead. The new event alone decides whether the execution ends.
    Replace(TaskEvent),
    /// End the execution, even if the executor still works.
    End {
        /// Event to store before the end. Clients see this event.
        event: Option<TaskEvent>,
        /// Event that ends the execution. If this event does not end the execution, the task fails.
        result: TaskEvent,
    },
    /// Stop the executor and fail the task with this reason.
    Fail(Arc<str>),
}

/// Cleans up after an execution.
pub trait Cleanup: Send + Sync {
    /// Called once after each execution and after each stop, if the factory has created parts for it. If a stop waits
    /// for the clean-up, the time limit is the grace.
    ///
    /// In a cluster, a worker that has lost its lease may no longer run tasks. Such a worker also calls this method,
    /// and another worker may already run the task. So clean up only resources of this process, for example its locks
    /// and folders. Do not clean up resources that the next worker of the task uses.
    fn clean_up(&self, cx: CleanupCx) -> BoxFuture<'static, ()>;
}

/// Context of a clean-up: the result and the error of an execution or a stop.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CleanupCx {
    /// The task as last stored.
    pub task: Arc<Task>,
    /// Error of the execution or the stop. `None` if the end is stored and contains no error.
    pub error: Option<ExecutionError>,
}

/// Error with which an execution or a stop has ended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutionError {
    /// The execution has failed with this reason, which the task also contains.
    #[error("{0}")]
    Failed(Arc<str>),
    /// The canceler or the factory has refused the stop. The task does not change.
    #[error("the stop was refused: {0}")]
    StopRefused(#[source] ExecutorError),
    /// The store has not confirmed the end.
    #[error(transparent)]
    Store(#[from] TaskStoreError),
}

/// Creates the parts of a task: one method for the start of an execution, one for a stop of a task at rest.
pub trait TaskPartsFactory: Send + Sync {
    /// Creates the parts of an execution. A stop of this execution uses the canceler of these parts.
    ///
    /// # Errors
    /// If the factory returns an error, the task fails.
    fn create(&self, task: Arc<Task>) -> BoxFuture<'static, Result<TaskParts, ExecutorError>>;

    /// Creates the parts for a stop while no executor of the task runs. By default, takes them from
    /// [`create`](Self::create).
    ///
    /// # Errors
    /// If the factory returns an error, the stop is refused with the error. A stop of an interrupted execution is not
    /// refused; the task then fails with the error.
    fn create_for_cancel(
        &self,
        task: Arc<Task>,
    ) -> BoxFuture<'static, Result<CancelParts, ExecutorError>> {
        let created = self.create(task);
        Box::pin(async move { created.await.map(CancelParts::from) })
    }

    /// Parts that all tasks share. If this method returns parts, the other methods are not called. The manager calls
    /// this method once, when it opens.
    fn shared_parts(&self) -> Option<TaskParts> {
        None
    }
}

/// Parts of one task.
#[derive(Clone)]
#[non_exhaustive]
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
    /// Creates parts that contain only an executor.
    pub fn of(executor: impl Executor + 'static) -> Self {
        Self {
            executor: Arc::new(executor),
            canceler: None,
            processor: None,
            cleanup: None,
        }
    }

    /// Sets the canceler.
    #[must_use]
    pub fn canceler(mut self, canceler: impl Canceler + 'static) -> Self {
        self.canceler = Some(Arc::new(canceler));
        self
    }

    /// Sets the processor.
    #[must_use]
    pub fn processor(mut self, processor: impl Processor + 'static) -> Self {
        self.processor = Some(Arc::new(processor));
        self
    }

    /// Sets the clean-up.
    #[must_use]
    pub fn cleanup(mut self, cleanup: impl Cleanup + 'static) -> Self {
        self.cleanup = Some(Arc::new(cleanup));
        self
    }
}

impl fmt::Debug for TaskParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskParts").finish_non_exhaustive()
    }
}

/// Parts for a stop of a task whose executor does not run.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CancelParts {
    /// Ends the remaining work. `None` if the manager ends the task immediately.
    pub canceler: Option<Arc<dyn Canceler>>,
    /// Checks each event of the canceler.
    pub processor: Option<Arc<dyn Processor>>,
    /// Cleans up after the stop.
    pub cleanup: Option<Arc<dyn Cleanup>>,
    /// Parts of an execution from which these parts come. Kept until the clean-up, because their destructors are code of
    /// the embedding program.
    _source: Option<TaskParts>,
}

impl CancelParts {
    /// Creates parts that contain only a canceler.
    pub fn of(canceler: impl Canceler + 'static) -> Self {
        Self {
            canceler: Some(Arc::new(canceler)),
            ..Self::default()
        }
    }

    /// Sets the processor.
    #[must_use]
    pub fn processor(mut self, processor: impl Processor + 'static) -> Self {
        self.processor = Some(Arc::new(processor));
        self
    }

    /// Sets the clean-up.
    #[must_use]
    pub fn cleanup(mut self, cleanup: impl Cleanup + 'static) -> Self {
        self.cleanup = Some(Arc::new(cleanup));
        self
    }
}

impl From<TaskParts> for CancelParts {
    fn from(parts: TaskParts) -> Self {
        Self {
            canceler: parts.canceler.clone(),
            processor: parts.processor.clone(),
            cleanup: parts.cleanup.clone(),
            _source: Some(parts),
        }
    }
}

impl fmt::Debug for CancelParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelParts").finish_non_exhaustive()
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
