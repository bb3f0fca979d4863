//! Stops in a cluster: the request is in the task's log before its owner is asked, and the receipt comes from the owner.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, NothingToStop, ReceiptItem};
use allstop_core::{Cause, Receipt, TaskId, Timestamp, WorkerId};
use allstop_log::{LogError, Version};
use allstop_scope::FORCE_MAX;
use tokio::time::{Instant, sleep, timeout};

use super::lease::LeaseState;
use super::node::ClusterNode;
use super::owner_question::{Attended, LeftStopped, OwnerQuestion, Previewed};
use super::stop_delivery::StopDelivery;
use super::wake_up::WakeUp;
use crate::error::{CancelError, ExecuteError, TaskStoreError};
use crate::execution::{Execution, ExecutionResult};
use crate::executor::ExecutorError;
use crate::manager::{CancelOutcome, TaskManager};
use crate::model::{Task, TaskRecord};
use crate::task_stream::{TaskStream, read_task, tail_updates};

/// Interval in which the owner is asked again.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Pause behind an answer of the log that is older than what this stop has seen.
const STALE_PAUSE: Duration = Duration::from_millis(50);

impl TaskManager {
    pub(crate) async fn cancel_in_cluster(
        &self,
        node: &ClusterNode,
        id: &TaskId,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        let max = self.inner.root.grace() + FORCE_MAX + self.inner.options.ending_write_max;
        let until = Instant::now() + max;
        let (mut is_first_look, mut is_woken, mut has_requested) = (true, false, false);
        let mut has_seen_leases = false;
        let mut least = Version(0);
        loop {
            // Before anything is read: a log may grow as fast as it is read, or may not be there.
            if let Some(execution) = self.inner.execution_here(id) {
                drop(execution.stop(cause.clone()).receipt().await);
                if let Some(task) = end_here(&execution).await? {
                    return outcome_of(task);
                }
                is_first_look = false;
            }
            let read = read_task(&*self.inner.log, id).await?;
            let (version, task) = read.ok_or_else(|| CancelError::NotFound(id.clone()))?;
            if task.has_ended() && std::mem::take(&mut is_first_look) {
                return match self.stop_left(node, &task, &cause).await? {
                    Some(receipt) => Ok(CancelOutcome { task, receipt }),
                    None => self.inner.already_ended(task, cause),
                };
            }
            is_first_look = false;
            if task.has_ended() {
                return outcome_of(task);
            }
            if Instant::now() >= until {
                if task.stop_requested.is_none() {
                    // Others were always first to write: nobody would remember it, so it is not promised.
                    return Err(TaskStoreError::Fenced(version).into());
                }
                let delivery = node.deliver_stop(&task, None).await;
                return Err(CancelError::NotYet { task, delivery });
            }
            if version < least {
                // An old answer: this stop has already seen more.
                sleep(STALE_PAUSE).await;
                continue;
            }
            least = version;
            if !std::mem::replace(&mut has_seen_leases, true) && node.does_not_watch() {
                node.watch_leases().await?;
            }
            // Also one whose stop is requested already: it needs no worker, and all of them may be busy.
            if !task.is_executing
                && node.has_no_owner(&task)
                && let Some((execution, stop)) = self.inner.stop_at_rest(version, &task, &cause)
            {
                drop(stop.receipt().await);
                if let Some(task) = end_here(&execution).await? {
                    // No wake-up leads to the entry of this task, should this node end now.
                    node.flush_index().await;
                    return outcome_of(task);
                }
                continue;
            }
            if task.stop_requested.is_none() {
                if has_requested {
                    let error = ExecutorError::new("the canceler at the task's worker refused");
                    return Err(CancelError::Refused(error));
                }
                // A task that runs has a wake-up of its own.
                if !task.is_executing {
                    is_woken = true;
                    // Each time: the one before may have been about another record, and be gone. It finds a worker if neither this process nor the owner lives on.
                    let wake_up =
                        WakeUp::new(id, version.next(), (self.inner.options.now)()).to_bytes();
                    node.link().wake(wake_up).await?;
                }
                let request = self.request_stop(version, &task, &cause);
                let requested = if task.is_executing {
                    // Its owner stops it while the request is written: its end has the receipt in any case.
                    let delivery = node.deliver_stop(&task, Some(cause.clone()));
                    tokio::join!(request, delivery).0
                } else {
                    request.await
                };
                match requested {
                    Ok(requested) => {
                        (has_requested, least) = (true, requested);
                        if !task.is_executing {
                            node.deliver_stop(&task, None).await;
                        }
                        self.changed_behind(id, requested).await;
                    }
                    // The task has changed.
                    Err(TaskStoreError::Fenced(_) | TaskStoreError::Illegal { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            if !task.is_executing && !std::mem::replace(&mut is_woken, true) {
                // Requested by somebody whose wake-up may have been for nothing.
                let wake_up = WakeUp::new(id, version, (self.inner.options.now)()).to_bytes();
                node.link().wake(wake_up).await?;
            }
            has_requested = true;
            node.deliver_stop(&task, None).await;
            self.changed_behind(id, version).await;
        }
    }

    /// Stops the work that an ended task has left running, here or at its worker.
    async fn stop_left(
        &self,
        node: &ClusterNode,
        task: &Arc<Task>,
        cause: &Cause,
    ) -> Result<LeftStopped, LogError> {
        let left = self.inner.stop_left_here(task, cause.clone()).await;
        let owner = task.worker.as_ref();
        let is_other = |owner: &&WorkerId| node.worker().as_ref() != Some(owner);
        let other = owner.filter(is_other).filter(|_| !node.has_no_owner(task));
        let Some(owner) = other.filter(|_| left.is_none()) else {
            return Ok(left);
        };
        let question = OwnerQuestion::StopLeft {
            task: task.id.clone(),
            cause: cause.clone(),
        };
        let answer: Option<LeftStopped> = node.ask(owner, &question).await?;
        Ok(answer.flatten())
    }

    /// Waits for a record behind this one, until the owner is asked again.
    async fn changed_behind(&self, id: &TaskId, version: Version) {
        let changed = tail_updates(&*self.inner.log, id, version, 1);
        let _changed_or_not = timeout(ASK_EVERY, changed).await;
    }

    /// Writes the request. Returns its version.
    async fn request_stop(
        &self,
        version: Version,
        task: &Arc<Task>,
        cause: &Cause,
    ) -> Result<Version, TaskStoreError> {
        let mut stream = TaskStream::behind(Arc::clone(&self.inner.log), version, task);
        let requested = TaskRecord::StopRequested {
            cause: cause.clone(),
            at: (self.inner.options.now)(),
        };
        stream.append(vec![requested]).await?;
        Ok(stream.version())
    }

    pub(crate) async fn preview_in_cluster(
        &self,
        node: &ClusterNode,
        id: &TaskId,
        cause: Cause,
    ) -> Result<Receipt, CancelError> {
        let read = read_task(&*self.inner.log, id).await?;
        let (_, task) = read.ok_or_else(|| CancelError::NotFound(id.clone()))?;
        if let Some(preview) = self.inner.preview_here(id, cause.clone()) {
            return Ok(preview);
        }
        let info = self.inner.stop_info(id, cause.clone());
        let has_work = if task.has_ended() {
            !node.has_no_owner(&task)
        } else {
            task.is_executing
        };
        let Some(owner) = task.worker.as_ref().filter(|_| has_work) else {
            return Ok(if task.has_ended() {
                Receipt::of_nothing(info, NothingToStop::AlreadyEnded)
            } else {
                Receipt::of_preview(info, Vec::new())
            });
        };
        let question = OwnerQuestion::Preview {
            task: id.clone(),
            cause,
        };
        let answer: Option<Previewed> = node.ask(owner, &question).await?;
        if task.has_ended() && matches!(answer, Some(None)) {
            return Ok(Receipt::of_nothing(info, NothingToStop::AlreadyEnded));
        }
        Ok(answer.flatten().unwrap_or_else(|| {
            let state = ItemState::Unreachable {
                why: NotStoppedReason::NotConfirmed,
            };
            let id = owner.as_str();
            let owner = ReceiptItem::new(ItemKind::Remote, id, "worker of the task", state);
            Receipt::of_preview(info, vec![owner])
        }))
    }
}

/// The task behind the end of its execution here, which was stopped. `None`: at rest now, or another worker was first; the
/// stop finds the new state.
async fn end_here(execution: &Execution) -> Result<Option<Arc<Task>>, CancelError> {
    match execution.result().await {
        ExecutionResult::Ended(task) if task.has_ended() => return Ok(Some(task)),
        ExecutionResult::Refused(error) => return Err(CancelError::Refused(error)),
        ExecutionResult::Ended(_)
        | ExecutionResult::NotConfirmed(TaskStoreError::Fenced(_) | TaskStoreError::LeaseLost)
        | ExecutionResult::NotStarted(ExecuteError::Store(TaskStoreError::Fenced(_))) => {}
        ExecutionResult::NotConfirmed(error)
        | ExecutionResult::NotStarted(ExecuteError::Store(error)) => return Err(error.into()),
        ExecutionResult::NotStarted(_) => {}
    }
    execution.released().await;
    Ok(None)
}

/// The answer behind the end of a task that was stopped.
fn outcome_of(task: Arc<Task>) -> Result<CancelOutcome, CancelError> {
    let was_lost = task.ending.lost_execution.is_some();
    match task.ending.receipt.clone().filter(|_| !was_lost) {
        Some(receipt) => Ok(CancelOutcome { task, receipt }),
        // The executor, or the loss of its worker, was first.
        None => Err(CancelError::AlreadyEnded(task)),
    }
}

impl ClusterNode {
    /// Wakes a worker for the record that is written next.
    pub(crate) async fn wake_for_next(
        &self,
        stream: &TaskStream,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let wake_up = WakeUp::new(stream.id(), stream.version().next(), now);
        self.link().wake(wake_up.to_bytes()).await
    }

    fn has_no_owner(&self, task: &Task) -> bool {
        match &task.worker {
            None => true,
            Some(worker) => self.lease_state(worker) == LeaseState::Ended,
        }
    }

    /// Asks the owner to look.
    async fn deliver_stop(&self, task: &Task, stop: Option<Cause>) -> StopDelivery {
        let Some(owner) = &task.worker else {
            return StopDelivery::NoOwner;
        };
        let question = OwnerQuestion::Attend {
            task: task.id.clone(),
            stop,
        };
        match self.ask(owner, &question).await {
            Ok(Some(Attended::Observed)) => StopDelivery::Observed,
            Ok(None) if self.has_no_owner(task) => StopDelivery::NoOwner,
            Ok(_) => StopDelivery::Queued,
            Err(error) => {
                tracing::debug!(%error, task = %task.id, "the worker of a stopped task is not reached");
                StopDelivery::Queued
            }
        }
    }
}
