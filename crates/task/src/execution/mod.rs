//! Executions. An execution is the work for a task from an accepted request until the task has ended or waits for a
//! message.

mod acceptance;
mod client_answer;
mod ending;
mod engine;
mod hand_over;
mod host;
mod idle_cancel;
mod lifecycle;
#[cfg(test)]
mod lifecycle_tests;
mod part_receipts;
mod parts;
mod processing;
mod repeat_pause;
mod run_loop;
mod slot;
pub(crate) mod user_code;
mod work_scope;

use std::sync::Arc;
use std::time::Duration;

use allstop_core::decision::{CommitDecision, CommitVerdict};
use allstop_core::{Cause, CauseKind, Extent, TraceContext, WorkerId};
use allstop_scope::{NotStarted, Scope, ScopeOptions, Stop, StopRequest};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::error::{ExecuteError, TaskStoreError};
use crate::executor::{ExecutionError, ExecutorError};
use crate::model::Task;

pub(crate) use client_answer::Acceptance;
pub(crate) use engine::{ExecutionEngine, ExecutionJob, lost_worker};
use hand_over::HandOver;
pub(crate) use host::ExecutionHost;
pub(crate) use lifecycle::crashed;
pub use part_receipts::PartReceipts;
pub(crate) use slot::{SlotGuard, SlotRequest, WaitingSlot};
pub(crate) use work_scope::last_message;

/// Handle of an execution: stops it, and waits for its result.
#[derive(Debug)]
pub(crate) struct Execution {
    scope: Scope,
    decision: Arc<CommitDecision>,
    part_receipts: PartReceipts,
    /// W3C trace context of the request.
    trace: Option<TraceContext>,
    /// Worker that runs the execution, in a cluster.
    worker: Option<WorkerId>,
    hand_over: HandOver,
    /// Notified when the engine of the execution should read the records of other processes.
    look: Notify,
    /// Number of reads after such notifications.
    looks: watch::Sender<u64>,
    is_accepted: watch::Sender<bool>,
    result: watch::Sender<Option<ExecutionResult>>,
    /// True after a caller has requested a stop. The engine then shortens the work that follows the end.
    stop_requested: watch::Sender<bool>,
    is_released: watch::Sender<bool>,
    requested_at: Instant,
    /// Permit for a wake-up (a hint that the task needs a worker) that waits for the release. Only one wake-up can hold
    /// the permit.
    awaited_by: Semaphore,
}

/// Result of an execution.
#[derive(Debug, Clone)]
pub(crate) enum ExecutionResult {
    /// The end of the execution is durable: the task has ended, waits for its client, or was handed over.
    Ended(Arc<Task>),
    /// The execution never began: its first records were not accepted.
    NotStarted(ExecuteError),
    /// The manager shuts down before the execution has started. The task stays as it is, and the next manager of the
    /// store starts the execution.
    KeptWaiting,
    /// The canceler of a task without an executor refused the stop.
    Refused(ExecutorError),
    /// The store has not confirmed the end. A later result may follow.
    NotConfirmed(TaskStoreError),
}

impl Execution {
    /// Creates an execution in a new scope below `root`.
    pub(crate) fn new(
        root: &Scope,
        label: &str,
        trace: Option<TraceContext>,
        worker: Option<WorkerId>,
    ) -> Result<Self, NotStarted> {
        let decision = Arc::<CommitDecision>::default();
        let options = ScopeOptions::default().decision(Arc::clone(&decision));
        Ok(Self {
            scope: root.child(label, options)?,
            decision,
            part_receipts: PartReceipts::default(),
            trace,
            worker,
            hand_over: HandOver::default(),
            look: Notify::new(),
            looks: watch::Sender::default(),
            is_accepted: watch::Sender::new(false),
            result: watch::Sender::new(None),
            stop_requested: watch::Sender::new(false),
            is_released: watch::Sender::new(false),
            requested_at: Instant::now(),
            awaited_by: Semaphore::new(1),
        })
    }

    /// Scope that a stop of the task covers.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Time since the request for the execution.
    pub(crate) fn age(&self) -> Duration {
        self.requested_at.elapsed()
    }

    /// Stops the execution. A second stop joins the first.
    pub(crate) fn stop(&self, cause: Cause) -> Stop {
        self.stop_requested.send_replace(true);
        self.scope.stop(StopRequest::new(Extent::Subtree, cause))
    }

    /// Asks the engine to read the records of other processes. Resolves after the read, or when the execution is
    /// stopped.
    pub(crate) async fn look(&self) {
        let mut looks = self.looks.subscribe();
        self.ask_to_look();
        tokio::select! {
            biased;
            () = self.scope.stopped() => {}
            _looked = looks.changed() => {}
            _result = self.result() => {}
        }
    }

    /// Like [`look`](Self::look), but does not wait.
    pub(crate) fn ask_to_look(&self) {
        self.look.notify_one();
    }

    /// Worker that runs the execution, in a cluster.
    pub(crate) fn worker(&self) -> Option<&WorkerId> {
        self.worker.as_ref()
    }

    /// True if the worker has lost its lease, so that another worker ends the task.
    pub(crate) fn has_lost_lease(&self) -> bool {
        let cause = self.scope.cause();
        cause.is_some_and(|cause| cause.kind == CauseKind::LeaseLost)
    }

    /// True if the executor has ended the execution, and only the write of the end or the clean-up remains.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.decision.verdict(), Some(CommitVerdict::Commit))
    }

    /// True if a stop was accepted.
    pub(crate) fn is_stopping(&self) -> bool {
        self.scope.is_stopped()
    }

    /// Resolves when the message of the execution is durable.
    ///
    /// # Errors
    /// If the message was not accepted.
    pub(crate) async fn accepted(&self) -> Result<(), ExecuteError> {
        let mut accepted = self.is_accepted.subscribe();
        tokio::select! {
            biased;
            // The sender is part of this handle, so the wait cannot fail.
            _accepted = accepted.wait_for(|is_accepted| *is_accepted) => Ok(()),
            result = self.result() => match result {
                ExecutionResult::NotStarted(error) => Err(error),
                ExecutionResult::NotConfirmed(error) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }

    /// Waits for the result.
    pub(crate) async fn result(&self) -> ExecutionResult {
        let mut results = self.result.subscribe();
        let result = results.wait_for(Option::is_some).await;
        let result = result.ok().and_then(|result| result.clone());
        result.expect("this handle keeps the sender, and the wait is for a value")
    }

    /// The present result, if there is one.
    pub(crate) fn present_result(&self) -> Option<ExecutionResult> {
        self.result.borrow().clone()
    }

    /// Error of the present result. `None` if the end is stored and contains no error.
    pub(crate) fn error(&self) -> Option<ExecutionError> {
        match self.present_result()? {
            ExecutionResult::Ended(task) => task.ending.error.clone().map(ExecutionError::Failed),
            ExecutionResult::Refused(error) => Some(ExecutionError::StopRefused(error)),
            ExecutionResult::NotConfirmed(error)
            | ExecutionResult::NotStarted(ExecuteError::Store(error)) => Some(error.into()),
            // No parts exist for these results, so no clean-up receives an error.
            ExecutionResult::NotStarted(_) | ExecutionResult::KeptWaiting => None,
        }
    }

    /// Resolves when a stop is requested, even if the execution has already ended.
    pub(crate) async fn stop_requested(&self) {
        let mut requested = self.stop_requested.subscribe();
        // The sender is part of this handle, so the wait cannot fail.
        let _set = requested.wait_for(|is_requested| *is_requested).await;
    }

    /// Acquires the permit to wait for the release of this execution. During the wait, the caller also holds a permit
    /// of the worker for one execution. `None` if another wake-up of the task already waits.
    pub(crate) fn await_release(&self) -> Option<SemaphorePermit<'_>> {
        self.awaited_by.try_acquire().ok()
    }

    /// Resolves when all work of the execution has ended, so that the next execution may start.
    pub(crate) async fn released(&self) {
        let mut released = self.is_released.subscribe();
        // The sender is part of this handle, so the wait cannot fail.
        let _ended = released.wait_for(|is_released| *is_released).await;
    }
}
