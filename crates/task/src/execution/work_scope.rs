//! Starts an executor in its scope, and ends the work that remains in this scope.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent};
use allstop_scope::{
    Deadline, Scope, ScopeOptions, StopRequest, WorkHandle, WorkSpec, instant_after,
};
use tokio::time::Instant;

use super::user_code::{self, ChosenError};
use super::{Execution, ExecutionEngine};
use crate::event_writer::EventWriter;
use crate::executor::{ExecutionCx, ExecutorError, ExecutorReturn, TaskParts};
use crate::live_text_writer::LiveTextWriter;
use crate::model::{MessageSender, Task, TaskMessage};

/// Time in which an executor can return after the end of its task. After this time, the scope of the executor is
/// stopped.
const LINGER_MAX: Duration = Duration::from_secs(2);

pub(super) type ExecutorResult = Result<ExecutorReturn, ExecutorError>;

/// A started executor.
pub(super) struct StartedExecutor {
    /// Scope of the executor.
    pub(super) work: WorkScope,
    pub(super) executor: WorkHandle<ExecutorResult>,
    /// Error from the panic handler, after the executor has panicked.
    pub(super) panic_error: ChosenError,
}

impl ExecutionEngine {
    /// Starts the executor. `None` if a stop came first.
    pub(super) fn start_executor(
        &self,
        parts: &TaskParts,
        task: Arc<Task>,
        events: EventWriter,
        is_resumed: bool,
    ) -> Option<StartedExecutor> {
        let scope = self.execution.scope();
        self.check_lease();
        let options = self.host.options();
        if let Some(max) = options.execution_max {
            scope.arm(Deadline {
                at: instant_after(Instant::now(), max),
                stops: None,
                detail: format!("execution limit of {max:?}").into(),
                extent: Extent::Subtree,
                bystanders: Vec::new(),
            });
        }
        let work = WorkScope(scope.child(scope.label(), ScopeOptions::default()).ok()?);
        let cx = ExecutionCx {
            message: last_message(&task)?,
            task,
            scope: work.0.clone(),
            events,
            live_text: LiveTextWriter::new(Arc::clone(self.stream.feed()), scope.clone()),
            receipts: self.execution.part_receipts.clone(),
            trace: self.trace(),
            waker: Arc::clone(&self.host).waker(self.stream.id()),
            is_resumed,
            execution_scope: scope.clone(),
        };
        let executor = Arc::clone(&parts.executor);
        let code = async move { executor.execute(cx).await };
        let panic_error = ChosenError::default();
        let (on_panic, chosen) = (options.on_panic.clone(), Arc::clone(&panic_error));
        let code = user_code::reporting_panics("executor", on_panic, chosen, code);
        let spec = WorkSpec::new(ItemKind::Future, "executor").id("executor");
        let executor = work.0.spawn(spec, |_cx| code).ok()?;
        let feed = self.stream.feed();
        self.execution.note_executor(&parts.executor, feed);
        Some(StartedExecutor {
            work,
            executor,
            panic_error,
        })
    }
}

/// The message that the execution answers: the last message from the client. In an interrupted execution, later
/// messages of the executor may follow this message.
pub(crate) fn last_message(task: &Task) -> Option<Arc<TaskMessage>> {
    let is_of_client = |message: &&Arc<TaskMessage>| message.role == MessageSender::User;
    let last = task.history.iter().rev().find(is_of_client);
    last.or(task.history.last()).map(Arc::clone)
}

/// Scope of an executor. All work in this scope ends before the engine of the execution ends.
pub(super) struct WorkScope(pub(super) Scope);

impl Drop for WorkScope {
    fn drop(&mut self) {
        self.0.close();
        if !self.0.is_quiet() {
            drop(self.0.stop(leftover_stop()));
        }
    }
}

fn leftover_stop() -> StopRequest {
    let cause = Cause::new(CauseKind::Parent).detail("the task has ended");
    StopRequest::new(Extent::Subtree, cause)
}

/// Ends the work that the executor has left running after the end of the task. If a stop waits for the execution, the
/// executor gets no more time to return.
pub(super) async fn end_leftover(
    work_scope: &Scope,
    executor: Option<WorkHandle<ExecutorResult>>,
    execution: &Execution,
) {
    if let Some(executor) = executor {
        tokio::select! {
            // The result of the executor no longer has an effect.
            _late = tokio::time::timeout(LINGER_MAX, executor) => {}
            () = work_scope.stopped() => {}
            () = execution.stop_requested() => {}
        }
    }
    if !work_scope.is_quiet() {
        let receipt = work_scope.stop(leftover_stop()).await;
        if !receipt.quiet() {
            tracing::warn!(?receipt, "work of an ended task still runs");
        }
    }
}
