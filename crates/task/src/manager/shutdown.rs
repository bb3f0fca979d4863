//! The end of a manager.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::{ItemKind, ReceiptItem};
use allstop_core::{Cause, CauseKind, Receipt};
use futures::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::coordinator::Coordinator;
use super::{ManagerInner, TaskManager};
use crate::execution::{Execution, ExecutionResult};

/// Report of a shutdown.
#[derive(Debug)]
#[must_use = "the report says what still runs"]
pub struct ShutdownReport {
    /// Receipt of each execution that was stopped.
    pub receipts: Vec<Arc<Receipt>>,
    /// Number of executions whose end was not stored in time.
    pub not_stored: usize,
    /// Number of tasks whose executions had not started. They wait in the store for the next manager
    /// ([`keeps_queue`](crate::TaskOptions::keeps_queue)).
    pub kept_waiting: usize,
}

impl ShutdownReport {
    /// Number of executions that the shutdown stopped. All other executions had already ended, and only waited for the
    /// store.
    pub fn stopped(&self) -> usize {
        let stopped = |receipt: &&Arc<Receipt>| receipt.outcome().is_none();
        self.receipts.iter().filter(stopped).count()
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

    /// Accepts no more messages, and stops every execution with the cause `shutdown`. With
    /// [`keeps_queue`](crate::TaskOptions::keeps_queue), an execution that waits for a slot is not stopped: its task
    /// stays as it is, and the subscriptions to its execution end. Then the call waits, for at most `within`,
    /// for the receipts and for the writes of the ends. In a cluster, the call also waits for unfinished requests of
    /// clients.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the shutdown.
    pub async fn shutdown(&self, within: Duration, detail: &'static str) -> ShutdownReport {
        let until = Instant::now() + within;
        self.inner.table.lock().is_closed = true;
        let executions = self.inner.stop_taking();
        let cause = Cause::new(CauseKind::Shutdown).detail(detail);
        let stopping = executions.into_iter().map(|execution| {
            let stop = execution.stop(cause.clone());
            async move {
                // After the end of an execution, its clean-up runs, and the store may still confirm a write whose
                // outcome was unknown.
                let _in_time = timeout_at(until, execution.released()).await;
                let is_stored = match execution.present_result() {
                    Some(ExecutionResult::KeptWaiting) => return None,
                    Some(
                        ExecutionResult::Ended(_)
                        | ExecutionResult::Refused(_)
                        | ExecutionResult::NotStarted(_),
                    ) => true,
                    Some(ExecutionResult::NotConfirmed(_)) | None => false,
                };
                let receipt = stop.try_receipt().unwrap_or_else(|| stop.account_now());
                Some((receipt, is_stored))
            }
        });
        // Collected first: every stop begins before the first wait.
        let stopping: Vec<_> = stopping.collect();
        let ended = join_all(stopping).await;
        let ended: Vec<_> = ended.into_iter().flatten().collect();
        self.inner.coordinator.close(until).await;
        self.inner.is_shut_down.send_replace(true);
        ShutdownReport {
            kept_waiting: self.inner.table.lock().kept_waiting(),
            not_stored: ended.iter().filter(|(_, is_stored)| !is_stored).count(),
            receipts: ended.into_iter().map(|(receipt, _)| receipt).collect(),
        }
    }
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
