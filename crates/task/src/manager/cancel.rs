//! Stops of tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use allstop_core::receipt::{NothingToStop, ReceiptItem, StopInfo};
use allstop_core::{Cause, Extent, Receipt, StopId, TaskId};
use allstop_scope::Stop;
use ulid::Ulid;

use super::slot_guard::SlotRequest;
use super::table::TaskToStop;
use super::{ManagerInner, TaskManager};
use crate::error::{CancelError, ExecuteError, ReadTaskError};
use crate::execution::{Execution, ExecutionJob, ExecutionResult, user_code};
use crate::model::{Task, TaskState};

/// Answer to a stop.
#[derive(Debug, Clone)]
#[must_use = "the receipt says what still runs"]
pub struct CancelOutcome {
    /// The task behind its end.
    pub task: Arc<Task>,
    /// Receipt of the stop.
    pub receipt: Arc<Receipt>,
}

impl CancelOutcome {
    /// True if the task had ended, and the stop was of work that it had left running.
    pub fn is_of_left_work(&self) -> bool {
        let end = self.task.ending.receipt.as_ref();
        end.is_none_or(|end| end.stop_id() != self.receipt.stop_id())
    }
}

impl TaskManager {
    /// Stops a task: its execution, or the task itself if it is at rest. A second stop joins the first. If the
    /// execution ends or rests before the stop reaches it, the stop is decided again on the new state. If the task has
    /// ended, this stops the work that it has left running, if there is any.
    ///
    /// The answer comes within grace and force, and the time for the write of the end
    /// ([`ending_write_max`](crate::TaskOptions::ending_write_max)). A stop that is decided again takes that long once
    /// more. [`CancelError::Store`] says that the work was stopped and its end is not confirmed: the write is repeated.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the stop back.
    pub async fn cancel(&self, id: &TaskId, cause: Cause) -> Result<CancelOutcome, CancelError> {
        if let Some(node) = &self.inner.cluster {
            let (manager, own, id) = (self.clone(), Arc::clone(node), id.clone());
            let stopped = node.requests.to_its_end("stop", async move {
                manager.cancel_in_cluster(&own, &id, cause).await
            });
            return stopped.await.unwrap_or(Err(CancelError::ShuttingDown));
        }
        loop {
            let Some((execution, stop)) = self.inner.begin_stop(id, &cause)? else {
                let task = self.get_with_replies(id).await.map_err(not_read)?;
                let left = self.inner.stop_left_here(&task, cause.clone()).await;
                return match left {
                    Some(receipt) => Ok(CancelOutcome { task, receipt }),
                    None => self.inner.already_ended(task, cause),
                };
            };
            drop(stop.receipt().await);
            match execution.result().await {
                ExecutionResult::Ended(task) if task.has_ended() => {
                    return match task.ending.receipt.clone() {
                        Some(receipt) => Ok(CancelOutcome { task, receipt }),
                        // The executor was first.
                        None => Err(CancelError::AlreadyEnded(task)),
                    };
                }
                ExecutionResult::Refused(error) => return Err(CancelError::Refused(error)),
                ExecutionResult::NotConfirmed(error) => return Err(error.into()),
                ExecutionResult::NotStarted(ExecuteError::Store(error)) => {
                    return Err(error.into());
                }
                // At rest now, or its message was refused: the stop finds the new state.
                ExecutionResult::Ended(_) | ExecutionResult::NotStarted(_) => {
                    execution.released().await;
                }
            }
        }
    }

    /// The items that a stop of the task would find now.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn preview(&self, id: &TaskId, cause: Cause) -> Result<Receipt, CancelError> {
        if let Some(node) = &self.inner.cluster {
            return self.preview_in_cluster(node, id, cause).await;
        }
        let target = self.inner.table.lock().stop_target(id)?;
        let info = self.inner.stop_info(id, cause);
        let mut items = match target {
            TaskToStop::Running(execution) => execution.scope().running(),
            TaskToStop::AtRest => Vec::new(),
            TaskToStop::Ended => {
                let left = self.inner.previewed_by_executor(id);
                return Ok(if left.is_empty() {
                    Receipt::of_nothing(info, NothingToStop::AlreadyEnded)
                } else {
                    Receipt::of_preview(info, left)
                });
            }
        };
        items.extend(self.inner.previewed_by_executor(id));
        Ok(Receipt::of_preview(info, items))
    }
}

impl ManagerInner {
    /// A stop of a task that has ended: a task that was stopped answers with the id of its first stop.
    pub(crate) fn already_ended(
        &self,
        task: Arc<Task>,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        if task.status.state != TaskState::Canceled {
            return Err(CancelError::AlreadyEnded(task));
        }
        let mut info = self.stop_info(&task.id, cause);
        let mut left = Vec::new();
        if let Some(first) = &task.ending.receipt {
            info.stop_id = first.stop_id().clone();
            // Nobody has seen their end since.
            let items = first.items().iter();
            left.extend(items.filter(|item| item.state.breaks_quiet()).cloned());
        }
        let receipt = Arc::new(Receipt::of_ended(info, left));
        Ok(CancelOutcome { task, receipt })
    }

    /// Stops the execution of a task, or begins one that ends the task at rest. `None`: the task has ended.
    fn begin_stop(
        self: &Arc<Self>,
        id: &TaskId,
        cause: &Cause,
    ) -> Result<Option<(Arc<Execution>, Stop)>, CancelError> {
        let mut table = self.table.lock();
        let execution = match table.stop_target(id)? {
            TaskToStop::Ended => return Ok(None),
            TaskToStop::Running(execution) => execution,
            TaskToStop::AtRest => {
                if table.is_closed {
                    return Err(CancelError::ShuttingDown);
                }
                let scopes = self.new_execution(id, None, None);
                let scopes = scopes.map_err(|_stopped| CancelError::ShuttingDown)?;
                let execution = Arc::clone(&scopes.execution);
                table.enter(id, Arc::clone(&execution));
                let feed = table.feed(id).unwrap_or_default();
                drop(table);
                // Before the engine runs, so that it finds the stop. A stop that comes in between joins this one.
                let stop = execution.stop(cause.clone());
                let job = ExecutionJob::Cancel(cause.clone());
                // A stop has no message to accept.
                drop(self.spawn_engine(scopes, id.clone(), feed, job, SlotRequest::NotNeeded));
                return Ok(Some((execution, stop)));
            }
        };
        drop(table);
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

fn not_read(error: ReadTaskError) -> CancelError {
    match error {
        ReadTaskError::NotFound(id) => CancelError::NotFound(id),
        ReadTaskError::Store(error) => CancelError::Store(error),
    }
}
