//! Stops in a cluster. The node (this process) writes the stop request to the log of the task, and asks the owner (the
//! worker that runs the task) to read the request. For a running task, the node does both at the same time. The owner
//! creates the receipt of the stop.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ItemState, NotStoppedReason, ReceiptItem};
use allstop_core::{Cause, Receipt, TaskId, Timestamp, WorkerId};
use allstop_log::{LogError, Version};
use allstop_scope::FORCE_MAX;
use tokio::time::{Instant, sleep, timeout};

use super::lease::{LeaseEnd, LeaseState};
use super::node::ClusterNode;
use super::owner_question::{AttendReply, LeftStopped, OwnerQuestion, Previewed};
use super::stop_delivery::StopDelivery;
use super::stop_step::{StopLook, StopStep, TaskStopProgress, next_stop_step};
use super::wake_up::WakeUp;
use crate::error::{CancelError, TaskStoreError};
use crate::executor::ExecutorError;
use crate::manager::{CancelOutcome, ManagerInner, TaskManager, end_here, outcome_of};
use crate::model::{Task, TaskRecord};
use crate::task_stream::{TaskStream, tail_updates};

/// Interval after which the node asks the owner again.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Pause after the log has returned an older version than this stop has already seen.
const STALE_PAUSE: Duration = Duration::from_millis(50);

impl TaskManager {
    pub(crate) async fn cancel_in_cluster(
        &self,
        node: &Arc<ClusterNode>,
        id: &TaskId,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        let (manager, own, id) = (Arc::clone(&self.inner), Arc::clone(node), id.clone());
        let stopped = node.requests.run_detached("stop", async move {
            manager.stop_in_cluster(&own, &id, cause).await
        });
        stopped.await.unwrap_or(Err(CancelError::ShuttingDown))
    }
}

impl ManagerInner {
    async fn stop_in_cluster(
        self: &Arc<Self>,
        node: &ClusterNode,
        id: &TaskId,
        cause: Cause,
    ) -> Result<CancelOutcome, CancelError> {
        let max = self.root.grace() + FORCE_MAX + self.options.ending_write_max;
        let until = Instant::now() + max;
        let (mut progress, mut has_seen_leases) = (TaskStopProgress::default(), false);
        loop {
            // An execution in this process is stopped before the log is read: the log may not answer, or may grow as
            // fast as this process reads.
            if let Some(execution) = self.execution_here(id) {
                drop(execution.stop(cause.clone()).receipt().await);
                if let Some(task) = end_here(&execution).await? {
                    return outcome_of(task);
                }
                progress.has_seen_it_open = true;
            }
            let (version, task) = self.stored(id).await?;
            if !task.has_ended()
                && !std::mem::replace(&mut has_seen_leases, true)
                && node.does_not_watch()
            {
                node.watch_leases().await?;
            }
            let look = StopLook {
                version,
                task: &task,
                can_end_here: node.has_no_owner(&task) && self.may_end(id),
                is_late: Instant::now() >= until,
            };
            let step = next_stop_step(&progress, look);
            progress.has_seen_it_open = true;
            progress.version = progress.version.max(version);
            match step {
                StopStep::StopLeft => {
                    return match self.stop_orphans(node, &task, &cause).await? {
                        Some(receipt) => Ok(CancelOutcome { task, receipt }),
                        None => self.already_ended(task, cause),
                    };
                }
                StopStep::Answer => return outcome_of(task),
                StopStep::Report => {
                    let delivery = node.deliver_stop(&task, None).await;
                    return Err(CancelError::NotYet { task, delivery });
                }
                StopStep::GiveUp => return Err(TaskStoreError::Fenced(version).into()),
                StopStep::ReadAgain => sleep(STALE_PAUSE).await,
                StopStep::EndHere => {
                    let execution = if task.is_executing {
                        // The execution finds the stop request in the log, and runs nothing.
                        self.take(version, &task, None)
                    } else {
                        self.stop_at_rest(version, &task, &cause)
                    };
                    let Some(execution) = execution else {
                        continue;
                    };
                    if let Some(task) = end_here(&execution).await? {
                        // This task has no wake-up (a hint that brings a worker to the task). If this node ended before
                        // it writes the index entry, no other worker would write the entry.
                        node.flush_index().await;
                        return outcome_of(task);
                    }
                }
                StopStep::Refused => {
                    let error = ExecutorError::new("the canceler at the task's worker refused");
                    return Err(CancelError::Refused(error));
                }
                StopStep::RequestRunning | StopStep::RequestAtRest => {
                    self.request_stop(node, version, &task, &cause, &mut progress)
                        .await?;
                }
                StopStep::Ask { wakes } => {
                    if wakes {
                        progress.is_woken = true;
                        node.wake_for(id, version, self.now()).await?;
                    }
                    progress.has_requested = true;
                    node.deliver_stop(&task, None).await;
                    self.changed_after(id, version).await;
                }
            }
        }
    }

    /// Stops the orphaned work of an ended task (work that still runs), here or at its worker. If the worker does not
    /// answer, one item of the receipt stands for possible work.
    async fn stop_orphans(
        &self,
        node: &ClusterNode,
        task: &Arc<Task>,
        cause: &Cause,
    ) -> Result<LeftStopped, LogError> {
        let left = self.stop_orphans_here(task, cause.clone()).await;
        let owner = task.worker.as_ref();
        let is_other = |owner: &&WorkerId| node.worker().as_ref() != Some(owner);
        let other = owner.filter(is_other).filter(|_| !node.has_no_owner(task));
        let is_stopped = left.as_ref().is_some_and(|left| left.outcome().is_none());
        let Some(owner) = other.filter(|_| !is_stopped) else {
            return Ok(left);
        };
        let question = OwnerQuestion::StopLeft {
            task: task.id.clone(),
            cause: cause.clone(),
        };
        let answer: Option<LeftStopped> = node.ask(owner, &question).await?;
        let Some(stopped) = answer else {
            let info = self.stop_info(&task.id, cause.clone());
            let possible = || Arc::new(Receipt::already_ended(info, vec![silent_owner(owner)]));
            return Ok(Some(left.unwrap_or_else(possible)));
        };
        Ok(stopped.or(left))
    }

    /// Waits for a record after this version, at most until the next question to the owner is due.
    async fn changed_after(&self, id: &TaskId, version: Version) {
        let changed = tail_updates(&*self.log, id, version, 1);
        let _changed_or_not = timeout(ASK_EVERY, changed).await;
    }

    /// Writes the stop request, and asks the owner to read the request. If the task has changed since it was read, the
    /// request is not written, and the caller reads the task again.
    async fn request_stop(
        &self,
        node: &ClusterNode,
        version: Version,
        task: &Arc<Task>,
        cause: &Cause,
        progress: &mut TaskStopProgress,
    ) -> Result<(), CancelError> {
        let mut stream = TaskStream::after(Arc::clone(&self.log), version, task);
        let requested = TaskRecord::StopRequested {
            cause: cause.clone(),
            at: self.now(),
        };
        let requested = if task.is_executing {
            // A running task already has a wake-up. The question contains the cause, so the owner stops the task in
            // parallel to the write of the request. The end of the task therefore has the receipt even if the write
            // fails.
            let delivery = node.deliver_stop(task, Some(cause.clone()));
            tokio::join!(stream.append(vec![requested]), delivery).0
        } else {
            progress.is_woken = true;
            // Each request needs a new wake-up: the last wake-up may have announced another record, and may have been
            // removed. Through the new wake-up a worker finds the request even if both this process and the owner end.
            node.append_announced(&mut stream, requested, self.now())
                .await
        };
        match requested {
            Ok(()) => {
                (progress.has_requested, progress.version) = (true, stream.version());
                if !task.is_executing {
                    node.deliver_stop(task, None).await;
                }
                self.changed_after(&task.id, stream.version()).await;
                Ok(())
            }
            // The task has changed: the caller reads it again.
            Err(TaskStoreError::Fenced(_) | TaskStoreError::Illegal { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn preview_in_cluster(
        &self,
        node: &ClusterNode,
        id: &TaskId,
        cause: Cause,
    ) -> Result<Receipt, CancelError> {
        let (_, task) = self.stored(id).await?;
        if let Some(preview) = self.preview_here(id, cause.clone()) {
            return Ok(preview);
        }
        let info = self.stop_info(id, cause.clone());
        let without_owner = async |info| {
            if task.has_ended() {
                self.preview_ended(&task, info).await
            } else {
                Receipt::of_preview(info, Vec::new())
            }
        };
        if node.does_not_watch() {
            node.watch_leases().await?;
        }
        // A task at rest may have work too: its turn may wait for an answer of the client.
        let has_work = if task.has_ended() {
            !node.has_no_owner(&task)
        } else {
            task.is_executing || node.may_have_work_elsewhere(&task, node.worker().as_ref())
        };
        let Some(owner) = task.worker.as_ref().filter(|_| has_work) else {
            return Ok(without_owner(info).await);
        };
        let question = OwnerQuestion::Preview {
            task: id.clone(),
            cause,
        };
        let answer: Option<Previewed> = node.ask(owner, &question).await?;
        if !task.is_executing && matches!(answer, Some(None)) {
            return Ok(without_owner(info).await);
        }
        let answer = answer.flatten();
        Ok(answer.unwrap_or_else(|| Receipt::of_preview(info, vec![silent_owner(owner)])))
    }
}

/// Item for the work of a worker that does not answer.
fn silent_owner(owner: &WorkerId) -> ReceiptItem {
    let state = ItemState::Unreachable {
        why: NotStoppedReason::NotConfirmed,
    };
    ReceiptItem::new(
        ItemKind::Remote,
        owner.as_str(),
        "worker of the task",
        state,
    )
}

impl ClusterNode {
    /// Sends a wake-up that announces the number of the next record, and appends the record. If a late receipt takes
    /// this number, a second wake-up announces the actual number.
    pub(crate) async fn append_announced(
        &self,
        stream: &mut TaskStream,
        record: TaskRecord,
        now: Timestamp,
    ) -> Result<(), TaskStoreError> {
        let awaited = stream.version().next();
        self.wake_for(stream.id(), awaited, now).await?;
        stream.append(vec![record]).await?;
        if stream.version() != awaited {
            self.wake_for(stream.id(), stream.version(), now).await?;
        }
        Ok(())
    }

    /// Stores a wake-up that announces a record of the task.
    pub(crate) async fn wake_for(
        &self,
        id: &TaskId,
        version: Version,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let wake_up = WakeUp::new(id, version, now).to_bytes();
        self.options.wake_ups.wake(wake_up).await
    }

    /// True if the last execution of the task ran at another worker that has not returned its lease, so the worker may
    /// still have work of the task. A worker returns its lease only when it closes, and then ends all its work.
    pub(crate) fn may_have_work_elsewhere(&self, task: &Task, own: Option<&WorkerId>) -> bool {
        let other = task.worker.as_ref().filter(|worker| Some(*worker) != own);
        let returned = LeaseState::Ended(LeaseEnd::Returned);
        other.is_some_and(|worker| self.lease_state(worker) != returned)
    }

    fn has_no_owner(&self, task: &Task) -> bool {
        match &task.worker {
            None => true,
            Some(worker) => self.lease_state(worker).has_ended(),
        }
    }

    /// Asks the owner to read the stop request in the log.
    async fn deliver_stop(&self, task: &Task, stop: Option<Cause>) -> StopDelivery {
        let Some(owner) = &task.worker else {
            return StopDelivery::NoOwner;
        };
        let question = OwnerQuestion::Attend {
            task: task.id.clone(),
            stop,
        };
        match self.ask(owner, &question).await {
            Ok(Some(AttendReply::Observed)) => StopDelivery::Observed,
            Ok(None) if self.has_no_owner(task) => StopDelivery::NoOwner,
            Ok(_) => StopDelivery::Queued,
            Err(error) => {
                tracing::debug!(%error, task = %task.id, "the worker of a stopped task is not reached");
                StopDelivery::Queued
            }
        }
    }
}
