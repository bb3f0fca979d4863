//! The end of a manager.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ReceiptItem};
use allstop_core::{Cause, CauseKind, Receipt};
use futures::future::join_all;
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::{ManagerInner, TaskManager};
use crate::execution::{Execution, ExecutionResult};
use crate::model::Task;

/// Report of a shutdown.
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "the report lists the remaining work"]
pub struct ShutdownReport {
    /// Receipt of each execution that was stopped.
    pub receipts: Vec<Arc<Receipt>>,
    /// Number of executions whose end was not stored in time.
    pub not_stored: usize,
    /// Number of running tasks that this worker has handed over to other workers of its cluster
    /// ([`Executor::can_hand_over`](crate::Executor::can_hand_over)).
    pub handed_over: usize,
    /// Number of tasks whose executions had not started. They wait in the store for the next manager
    /// ([`keeps_queue`](crate::TaskOptions::keeps_queue)).
    pub kept_waiting: usize,
}

impl ShutdownReport {
    /// Number of executions that the shutdown stopped and did not hand over. All other executions had already ended, and
    /// only waited for the store.
    pub fn stopped(&self) -> usize {
        let stopped = |receipt: &&Arc<Receipt>| receipt.outcome().is_none();
        let stopped = self.receipts.iter().filter(stopped).count();
        stopped.saturating_sub(self.handed_over)
    }

    /// Number of executions whose work still runs. If the engine of an execution only waits for the store, the engine
    /// does not count as work.
    pub fn left_running(&self) -> usize {
        let runs = |item: &ReceiptItem| {
            item.kind != ItemKind::Engine
                && item.state.breaks_quiet()
                && !item.state.is_outside_extent()
        };
        let left = |receipt: &&Arc<Receipt>| receipt.items().iter().any(runs);
        self.receipts.iter().filter(left).count()
    }
}

/// Execution that a shutdown has stopped.
struct EndedExecution {
    receipt: Arc<Receipt>,
    is_stored: bool,
    /// The task, if it was handed over.
    handed_over: Option<Arc<Task>>,
}

impl TaskManager {
    /// Accepts no more messages. Waits until no execution runs and no execution waits for a slot. Stops are still
    /// accepted. With [`keeps_queue`](crate::TaskOptions::keeps_queue), the waiting executions stay in the store.
    ///
    /// # Cancel safety
    /// Dropping the future does not end the drain.
    pub async fn drain(&self) {
        for execution in self.inner.stop_taking() {
            execution.released().await;
        }
    }

    /// Resolves when another process has asked this process to accept no more tasks, and no execution is left here. If
    /// this process is not a worker of a cluster, the future never resolves.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn drained_from_elsewhere(&self) {
        self.asked_to_drain().await;
        self.drain().await;
    }

    /// Number of executions in this process whose ends the store has not confirmed. If a shutdown does not return in time,
    /// this number replaces [`ShutdownReport::not_stored`].
    pub fn unstored_ends(&self) -> usize {
        let executions = self.inner.table.lock().executions();
        let unstored = executions.iter().filter(|execution| lacks_end(execution));
        unstored.count()
    }

    /// Accepts no more messages, and stops every execution with the cause `shutdown`. A worker of a cluster hands the tasks
    /// over whose executors can continue elsewhere; all other stopped tasks are cancelled. With
    /// [`keeps_queue`](crate::TaskOptions::keeps_queue), an execution that waits for a slot is not stopped: its task
    /// stays as it is, and the subscriptions to its execution end. Then the call waits, for at most `within`,
    /// for the receipts and for the writes of the ends. In a cluster, the call also waits for unfinished requests of
    /// clients.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the shutdown.
    pub async fn shutdown(&self, within: Duration, detail: &'static str) -> ShutdownReport {
        let until = Instant::now() + within;
        let time_left = || until.saturating_duration_since(Instant::now());
        self.inner.table.lock().is_closed = true;
        let executions = self.inner.stop_taking();
        let cause = Cause::new(CauseKind::Shutdown).detail(detail);
        let handing_over = format!("{detail}; another worker continues the task");
        let handing_over = Cause::new(CauseKind::Shutdown).detail(handing_over);
        let stopping = executions.into_iter().map(|execution| {
            let on_panic = self.inner.options.on_panic.as_ref();
            let stop = if execution.can_hand_over(on_panic) {
                execution.hand_over(handing_over.clone())
            } else {
                execution.stop(cause.clone())
            };
            async move {
                // After the end of an execution, its clean-up runs, and the store may still confirm a write whose
                // outcome was unknown.
                let released = execution.released();
                let _in_time = self.inner.root.timeout(time_left(), released).await;
                let is_stored = !lacks_end(&execution);
                let handed_over = match execution.present_result() {
                    Some(ExecutionResult::KeptWaiting) => return None,
                    Some(ExecutionResult::Ended(task)) => {
                        task.handed_over.is_some().then_some(task)
                    }
                    _ => None,
                };
                Some(EndedExecution {
                    receipt: stop.try_receipt().unwrap_or_else(|| stop.account_now()),
                    is_stored,
                    handed_over,
                })
            }
        });
        // Collected first: every stop begins before the first wait.
        let stopping: Vec<_> = stopping.collect();
        let ended = join_all(stopping).await;
        let ended: Vec<_> = ended.into_iter().flatten().collect();
        let handed_over: Vec<_> = ended
            .iter()
            .filter_map(|it| it.handed_over.as_ref())
            .collect();
        let now = self.inner.now();
        let wakes = handed_over
            .iter()
            .map(|task| self.inner.coordinator.wake(task, now));
        let woken = join_all(wakes);
        let _in_time = self.inner.root.timeout(time_left(), woken).await;
        let handed_over = handed_over.len();
        self.inner.coordinator.close(until).await;
        self.inner.is_shut_down.send_replace(true);
        ShutdownReport {
            kept_waiting: self.inner.table.lock().kept_waiting(),
            handed_over,
            not_stored: ended.iter().filter(|it| !it.is_stored).count(),
            receipts: ended.into_iter().map(|it| it.receipt).collect(),
        }
    }
}

/// True if the store has not confirmed the end of the execution.
fn lacks_end(execution: &Execution) -> bool {
    matches!(
        execution.present_result(),
        Some(ExecutionResult::NotConfirmed(_)) | None
    )
}

impl ManagerInner {
    /// True if executions that wait for a slot stay in the store when this manager shuts down.
    pub(super) fn keeps_queue(&self) -> bool {
        self.options.keeps_queue && matches!(self.coordinator, Coordinator::Local { .. })
    }

    /// Makes this process accept no more messages and tasks. Returns its executions.
    pub(crate) fn stop_taking(&self) -> Vec<Arc<Execution>> {
        let mut table = self.table.lock();
        table.is_draining = true;
        if self.keeps_queue() {
            table.slots.close_queue();
        }
        let executions = table.executions();
        drop(table);
        self.is_draining.send_replace(true);
        executions
    }
}
