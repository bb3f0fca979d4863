//! The end of an execution: its account, and the write that a failing store delays but does not lose.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Extent, Receipt};
use allstop_scope::EngineGuard;
use tokio::time::{Instant, sleep};

use super::lifecycle::{Lifecycle, LifecycleEffect, LifecycleEvent};
use super::{Execution, ExecutionEngine, ExecutionResult};
use crate::error::TaskStoreError;
use crate::model::TaskRecord;

/// First pause before the write of an end is repeated.
const REPEAT_MIN: Duration = Duration::from_millis(50);
/// Longest pause: a store that comes back is used again within a second.
const REPEAT_MAX: Duration = Duration::from_secs(1);

impl Execution {
    /// Publishes the result.
    pub(super) fn finish(&self, result: ExecutionResult) {
        self.result.send_replace(Some(result));
    }
}

impl ExecutionEngine {
    /// Writes the end of the execution, behind records that belong before it.
    pub(super) async fn end(&mut self, record: TaskRecord) {
        self.end_with(vec![record]).await;
    }

    /// Writes records of which the last ends the execution, until the store has confirmed them. A stop does not
    /// interrupt it; a shutdown of the manager does.
    pub(super) async fn end_with(&mut self, records: Vec<TaskRecord>) {
        let write_by = Instant::now() + self.manager.options.ending_write_max;
        let mut pause = REPEAT_MIN;
        let mut is_repeated = false;
        loop {
            let written = match self.stream.settle().await {
                // An earlier round's append was confirmed late.
                Ok(()) if is_repeated && !self.is_executing() => Ok(()),
                Ok(()) => self.stream.append(records.clone()).await,
                Err(error) => Err(error),
            };
            is_repeated = true;
            let error = match written {
                Ok(()) => break,
                Err(error) => error,
            };
            tracing::warn!(%error, "the end of a task is not stored");
            let is_final = matches!(
                error,
                TaskStoreError::Fenced(_) | TaskStoreError::Illegal { .. }
            );
            if is_final || Instant::now() >= write_by {
                self.execution.finish(ExecutionResult::NotConfirmed(error));
            }
            if is_final || self.manager.is_shut_down() {
                return;
            }
            sleep(pause).await;
            pause = REPEAT_MAX.min(pause * 2);
        }
        self.manager.note(&self.stream);
        if let Some(task) = self.stream.task() {
            self.execution
                .finish(ExecutionResult::Ended(Arc::clone(task)));
        }
    }

    /// Ends an execution whose executor never ran: with this event, or with the stop that came before it.
    pub(super) async fn end_without_executor(
        &mut self,
        event: LifecycleEvent,
        guard: &EngineGuard,
    ) {
        let mut lifecycle = Lifecycle::new(Arc::clone(&self.execution.decision));
        let mut effect = lifecycle.handle(event, self.now());
        if lifecycle.is_stopping()
            && let Some(receipt) = self.account(guard).await
        {
            effect = lifecycle.handle(LifecycleEvent::Accounted(receipt), self.now());
        }
        if let LifecycleEffect::End(record) = effect {
            self.end(record).await;
        }
    }

    /// The receipt of the stop that covers the execution; `None` without one.
    pub(super) async fn account(&self, guard: &EngineGuard) -> Option<Arc<Receipt>> {
        let account = self.execution.scope.account(Extent::Subtree, Vec::new())?;
        guard.acknowledge();
        Some(account.receipt().await)
    }
}
