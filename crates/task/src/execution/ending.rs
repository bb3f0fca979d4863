//! The end of an execution: the receipt of its stop, and the final write. If the store fails, the write is repeated
//! until it succeeds.

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_log::LogError;
use allstop_scope::EngineGuard;
use tokio::time::sleep;

use super::lifecycle::{Lifecycle, LifecycleEffect, LifecycleEvent, failed};
use super::repeat_pause::RepeatPause;
use super::{Execution, ExecutionEngine, ExecutionResult};
use crate::error::TaskStoreError;
use crate::model::{TaskRecord, TaskState};

impl Execution {
    /// Publishes the result.
    pub(super) fn finish(&self, result: ExecutionResult) {
        self.result.send_replace(Some(result));
    }

    /// Removes a result that was not final. The store has confirmed the write whose outcome was unknown.
    pub(super) fn withdraw_result(&self) {
        self.result.send_replace(None);
    }
}

impl ExecutionEngine {
    /// Writes the events and then the end of the execution, and repeats the write until the store has confirmed all of
    /// them. A stop does not interrupt the write, but a shutdown of the manager does.
    pub(super) async fn end(&mut self, events: Vec<TaskRecord>, end: TaskRecord) {
        if let Some(observer) = self.observer.as_mut().filter(|_| !self.is_executor_left) {
            observer.finished();
        }
        let end = self.or_hand_over(end);
        let written = self.write_or_give_up(events, end).await;
        self.host.note(&self.stream);
        let result = match (written, self.stream.task()) {
            (Ok(()), Some(task)) => ExecutionResult::Ended(Arc::clone(task)),
            (Ok(()), None) => ExecutionResult::NotConfirmed(TaskStoreError::Indeterminate),
            (Err(error), _) => ExecutionResult::NotConfirmed(error),
        };
        if let (Some(observer), ExecutionResult::Ended(task)) = (&mut self.observer, &result) {
            match &task.handed_over {
                Some(_) => observer.handed_over(),
                None => observer.ended(task),
            }
        }
        self.execution.finish(result);
    }

    /// Writes the end. If the write takes too long, publishes a preliminary result for the callers that wait.
    async fn write_or_give_up(
        &mut self,
        events: Vec<TaskRecord>,
        end: TaskRecord,
    ) -> Result<(), TaskStoreError> {
        let (execution, host) = (Arc::clone(&self.execution), Arc::clone(&self.host));
        let mut write = std::pin::pin!(self.write_end(events, end));
        let mut late = std::pin::pin!(sleep(host.options().ending_write_max));
        let mut is_late = false;
        loop {
            tokio::select! {
                biased;
                written = &mut write => return written,
                () = &mut late, if !is_late => {
                    is_late = true;
                    let error = TaskStoreError::Indeterminate;
                    execution.finish(ExecutionResult::NotConfirmed(error));
                }
                () = host.shut_down() => return Err(TaskStoreError::Indeterminate),
            }
        }
    }

    /// Writes the end, and repeats the write after a failure.
    async fn write_end(
        &mut self,
        mut events: Vec<TaskRecord>,
        mut end: TaskRecord,
    ) -> Result<(), TaskStoreError> {
        let mut pause = RepeatPause::default();
        let mut is_sent = false;
        loop {
            if self.execution.has_lost_lease() {
                self.keep_receipt(&end);
                return Err(TaskStoreError::LeaseLost);
            }
            let error = match self.try_write_end(&events, &end, &mut is_sent).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tracing::warn!(%error, "the end of a task is not stored");
            match error {
                TaskStoreError::Fenced(_) => {
                    self.keep_receipt(&end);
                    self.forward_stop().await;
                    return Err(error);
                }
                // This version cannot read these records. A worker with a newer version may read them and continue.
                TaskStoreError::Illegal { .. } | TaskStoreError::Unreadable { .. } => {
                    return Err(error);
                }
                TaskStoreError::Log(refusal) if !events.is_empty() => {
                    // The store refuses the events but may accept the end alone. The end then states that events are
                    // missing.
                    events.clear();
                    end = without_events(end, &refusal);
                }
                _ => pause.wait().await,
            }
        }
    }

    /// Another worker ends this execution. Keeps the receipt of this worker until the receipt can be written to the
    /// task.
    fn keep_receipt(&self, end: &TaskRecord) {
        let receipt = match end {
            TaskRecord::TaskEnded { ending, .. } => ending.receipt.as_ref(),
            TaskRecord::HandedOver { receipt, .. } => Some(receipt),
            _ => None,
        };
        let task = self.stream.task().filter(|task| task.is_executing);
        if let (Some(receipt), Some(worker), Some(task)) = (receipt, &self.execution.worker, task)
            && task.worker.as_ref() == Some(worker)
        {
            let late = TaskRecord::LateReceipt {
                epoch: task.epoch,
                worker: worker.clone(),
                receipt: Arc::clone(receipt),
                at: self.now(),
            };
            self.host.keep_receipt(&task.id, late);
        }
    }

    /// Another worker has taken the task over. Forwards the stop of this execution to that worker.
    async fn forward_stop(&mut self) {
        let Some(cause) = self.execution.scope.cause() else {
            return;
        };
        if matches!(cause.kind, CauseKind::LeaseLost | CauseKind::Shutdown) {
            return;
        }
        let mut pause = RepeatPause::default();
        loop {
            let passed = async {
                self.stream.reload().await?;
                let task = self.stream.task();
                if task.is_none_or(|task| task.has_ended() || task.stop_requested.is_some()) {
                    return Ok(());
                }
                let requested = TaskRecord::StopRequested {
                    cause: cause.clone(),
                    at: self.now(),
                };
                let host = Arc::clone(&self.host);
                host.append_announced(&mut self.stream, requested).await
            };
            match passed.await {
                Ok(()) => return,
                Err(
                    error @ (TaskStoreError::Illegal { .. } | TaskStoreError::Unreadable { .. }),
                ) => {
                    tracing::warn!(%error, "a stop is not passed on");
                    return;
                }
                Err(error) => tracing::debug!(%error, "a stop is passed on later"),
            }
            pause.wait().await;
        }
    }

    /// Makes one attempt. `is_sent` is true if the previous attempt was sent and the store has not answered it yet.
    async fn try_write_end(
        &mut self,
        events: &[TaskRecord],
        end: &TaskRecord,
        is_sent: &mut bool,
    ) -> Result<(), TaskStoreError> {
        if let Err(error) = self.stream.settle().await {
            // A conflict means that the previous attempt was not stored. Then the attempt must be repeated.
            *is_sent &= self.stream.has_unconfirmed();
            return Err(error);
        }
        if *is_sent {
            return Ok(());
        }
        // If the task was at rest, or if its start was not stored, the start record is written here.
        let started = (!self.is_executing()).then(|| self.started());
        let records = started.into_iter().chain(events.iter().cloned());
        let records = records.chain([end.clone()]).collect();
        let written = self.stream.append(records).await;
        *is_sent = written.is_err() && self.stream.has_unconfirmed();
        written
    }

    /// Ends an execution whose executor never ran. The reason is this event, or a stop that came before the event.
    pub(super) async fn end_without_executor(
        &mut self,
        event: LifecycleEvent,
        guard: &EngineGuard,
    ) {
        let mut lifecycle = Lifecycle::new(Arc::clone(&self.execution.decision));
        let mut effect = lifecycle.handle(event, self.now());
        if lifecycle.is_stopping() {
            self.observe_stop();
        }
        if lifecycle.is_stopping()
            && let Some(receipt) = self.account(guard).await
        {
            self.add_lost_worker();
            let receipt = self.execution.part_receipts.join(receipt);
            effect = lifecycle.handle(LifecycleEvent::Accounted(receipt), self.now());
        }
        if let LifecycleEffect::End(end) = effect {
            self.end(Vec::new(), end).await;
        }
    }

    /// Notifies the observer of the stop of the execution.
    pub(super) fn observe_stop(&mut self) {
        if let (Some(observer), Some(cause)) = (&mut self.observer, self.execution.scope.cause()) {
            observer.stopping(&cause);
        }
    }

    /// Waits for the receipt of the stop that covers the execution. `None` if no stop covers it.
    pub(super) async fn account(&self, guard: &EngineGuard) -> Option<Arc<Receipt>> {
        let account = self.execution.scope.account(Extent::Subtree, Vec::new())?;
        guard.acknowledge();
        Some(account.receipt().await)
    }
}

/// Adds an error to the end of a task: the store has refused the last events. A successful end becomes a failure.
fn without_events(end: TaskRecord, refusal: &LogError) -> TaskRecord {
    let reason = Arc::<str>::from(format!("an event was not stored: {refusal}"));
    match end {
        TaskRecord::TaskEnded {
            status,
            metadata,
            mut ending,
        } if matches!(status.state, TaskState::Canceled | TaskState::Failed) => {
            ending.error.get_or_insert(reason);
            TaskRecord::TaskEnded {
                status,
                metadata,
                ending,
            }
        }
        end => {
            let mut failure = failed(Cause::new(CauseKind::Failure), reason, end.at());
            if let (
                TaskRecord::TaskEnded { ending: new, .. },
                TaskRecord::TaskEnded { ending, .. },
            ) = (&mut failure, end)
            {
                new.receipt = ending.receipt;
            }
            failure
        }
    }
}
