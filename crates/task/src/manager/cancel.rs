//! Stops of tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use allstop_core::receipt::{ReceiptItem, StopInfo};
use allstop_core::{Cause, Extent, Receipt, StopId, TaskId};
use allstop_scope::Stop;
use ulid::Ulid;

use super::orphan_stop::unconfirmed_work;
use super::table::TaskToStop;
use super::{ManagerInner, TaskManager};
use crate::error::{CancelError, ExecuteError, TaskStoreError};
use crate::execution::{Execution, ExecutionJob, ExecutionResult, user_code};
use crate::model::{Task, TaskState};

/// Answer to a stop.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct CancelOutcome {
    /// The task after its end.
    pub task: Arc<Task>,
    /// Receipt of the stop.
    pub receipt: Arc<Receipt>,
}

impl CancelOutcome {
    /// True if the task had ended before this stop, and the stop covered orphaned work: work that still ran after the
    /// end of the task.
    pub fn covers_orphans(&self) -> bool {
        let end = self.task.ending.receipt.as_ref();
        end.is_none_or(|end| end.stop_id() != self.receipt.stop_id())
    }
}

impl TaskManager {
    /// Ends the grace of a running stop of a task: its processes are killed and its futures dropped now. Does nothing if
    /// no stop of the task runs in this process.
    pub fn force(&self, id: &TaskId) {
        let execution = self.inner.execution_here(id);
        let stopping = execution.and_then(|it| Some((it.scope().cause()?, it)));
        if let Some((cause, execution)) = stopping {
            // This stop joins the running stop.
            execution.stop(cause).end_grace();
        }
    }

    pub(super) async fn cancel_locally(
        &self,
        id: &TaskId,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        loop {
            let Some((execution, stop)) = self.inner.begin_stop(id, &cause)? else {
                let task = self.get_with_replies(id).await?;
                let left = self.inner.stop_orphans_here(&task, cause.clone()).await;
                return match left {
                    Some(receipt) => Ok(CancelOutcome { task, receipt }),
                    None => self.inner.already_ended(task, cause),
                };
            };
            drop(stop.receipt().await);
            if let Some(task) = end_here(&execution).await? {
                return outcome_of(task);
            }
        }
    }
}

impl TaskManager {
    pub(super) async fn preview_locally(
        &self,
        id: &TaskId,
        cause: Cause,
    ) -> Result<Receipt, CancelError> {
        if let Some(preview) = self.inner.preview_known(id, &cause)? {
            return Ok(preview);
        }
        let task = self.get_with_replies(id).await?;
        let info = self.inner.stop_info(id, cause);
        Ok(self.inner.preview_ended(&task, info).await)
    }
}

impl ManagerInner {
    /// Answers a stop of a task that has ended. If the task was stopped, the receipt has the id of the first stop.
    pub(crate) fn already_ended(
        &self,
        task: Arc<Task>,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        if task.status.state != TaskState::Canceled {
            return Err(CancelError::AlreadyEnded(task));
        }
        let mut info = self.stop_info(&task.id, cause);
        if let Some(first) = &task.ending.receipt {
            info.stop_id = first.stop_id().clone();
        }
        let receipt = Arc::new(Receipt::already_ended(info, unconfirmed_work(&task)));
        Ok(CancelOutcome { task, receipt })
    }

    /// Preview of a stop of a task of this process. `None` if the task has ended and this manager has no work of it.
    fn preview_known(&self, id: &TaskId, cause: &Cause) -> Result<Option<Receipt>, CancelError> {
        let target = self.table.lock().stop_target(id)?;
        if let Some(preview) = self.preview_here(id, cause.clone()) {
            return Ok(Some(preview));
        }
        Ok(match target {
            TaskToStop::Ended => None,
            _ => Some(Receipt::of_preview(
                self.stop_info(id, cause.clone()),
                Vec::new(),
            )),
        })
    }

    /// Stops the execution of a task. If the task is at rest (no execution runs), starts an execution that ends the
    /// task. `None` if the task has ended.
    fn begin_stop(
        self: &Arc<Self>,
        id: &TaskId,
        cause: &Cause,
    ) -> Result<Option<(Arc<Execution>, Stop)>, CancelError> {
        let mut table = self.table.lock();
        let execution = match table.stop_target(id)? {
            TaskToStop::Ended => return Ok(None),
            TaskToStop::Running(execution) => {
                drop(table);
                execution
            }
            TaskToStop::AtRest => {
                if table.is_closed {
                    return Err(CancelError::ShuttingDown);
                }
                let scopes = self.new_execution(id, None, None);
                let scopes = scopes.map_err(|_stopped| CancelError::ShuttingDown)?;
                let execution = Arc::clone(&scopes.execution);
                table.enter(id, Arc::clone(&execution));
                let feed = table.feed(id).unwrap_or_default();
                let job = ExecutionJob::Cancel(cause.clone());
                // The answer reports whether a message was accepted, and a stop has no message.
                drop(self.start_engine(table, scopes, id, feed, job, None));
                execution
            }
        };
        // A second stop joins the first.
        let stop = execution.stop(cause.clone());
        Ok(Some((execution, stop)))
    }

    pub(crate) fn previewed_by_executor(&self, id: &TaskId) -> Vec<ReceiptItem> {
        let Some(parts) = &self.shared_parts else {
            return Vec::new();
        };
        let items = catch_unwind(AssertUnwindSafe(|| parts.executor.preview(id)));
        items.unwrap_or_else(|panic| {
            user_code::report("preview", self.options.on_panic.as_ref(), &*panic);
            Vec::new()
        })
    }

    pub(crate) fn has_left_work(&self) -> bool {
        let Some(parts) = &self.shared_parts else {
            return true;
        };
        let left = catch_unwind(AssertUnwindSafe(|| parts.executor.has_left_work()));
        left.unwrap_or_else(|panic| {
            user_code::report("has_left_work", self.options.on_panic.as_ref(), &*panic);
            true
        })
    }

    pub(crate) fn stop_info(&self, id: &TaskId, cause: Cause) -> StopInfo {
        StopInfo {
            stop_id: StopId::new(Ulid::generate().to_string()),
            target: format!("task/{id}").into(),
            extent: Extent::Subtree,
            cause,
            requested_at: (self.options.now)(),
        }
    }
}

/// Waits until a stopped execution in this process has ended, and returns the ended task. `None` if the task is at rest
/// now, or if another worker has written to the task. The caller then decides about the stop again, with the new state.
pub(crate) async fn end_here(execution: &Execution) -> Result<Option<Arc<Task>>, CancelError> {
    match execution.result().await {
        ExecutionResult::Ended(task) if task.has_ended() => return Ok(Some(task)),
        ExecutionResult::Refused(error) => return Err(CancelError::Refused(error)),
        ExecutionResult::Ended(_)
        | ExecutionResult::KeptWaiting
        | ExecutionResult::NotConfirmed(TaskStoreError::Fenced(_) | TaskStoreError::LeaseLost)
        | ExecutionResult::NotStarted(ExecuteError::Store(TaskStoreError::Fenced(_))) => {}
        ExecutionResult::NotConfirmed(error)
        | ExecutionResult::NotStarted(ExecuteError::Store(error)) => return Err(error.into()),
        // The message of this execution was not accepted, so the execution never began.
        ExecutionResult::NotStarted(_) => {}
    }
    execution.released().await;
    Ok(None)
}

/// Returns the answer for a task that has ended during its stop.
pub(crate) fn outcome_of(task: Arc<Task>) -> Result<CancelOutcome, CancelError> {
    let was_lost = task.ending.lost_execution.is_some();
    match task.ending.receipt.clone().filter(|_| !was_lost) {
        Some(receipt) => Ok(CancelOutcome { task, receipt }),
        // The executor ended the task before the stop, or the task ended because its worker was lost.
        None => Err(CancelError::AlreadyEnded(task)),
    }
}
