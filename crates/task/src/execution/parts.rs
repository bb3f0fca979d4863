//! The parts of a task: an engine calls the factory that creates them, and cleans them up at its end. Both are code of the
//! embedding program.

use std::sync::Arc;
use std::time::Duration;

use allstop_scope::{EngineGuard, Scope};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::sleep;

use super::engine::{CreatedParts, ExecutionEngine};
use super::user_code;
use crate::executor::{CancelParts, CleanupCx, ExecutorError, TaskParts};
use crate::model::Task;

impl ExecutionEngine {
    /// Calls the factory for an execution.
    pub(super) async fn create_parts(
        &self,
        task: &Arc<Task>,
        guard: &EngineGuard,
    ) -> Result<TaskParts, ExecutorError> {
        if let Some(shared) = self.host.shared_parts() {
            return Ok(shared.clone());
        }
        let (host, task) = (Arc::clone(&self.host), Arc::clone(task));
        let create = move || host.create_parts(task);
        self.call_factory(create, guard).await
    }

    /// Calls the factory for a stop of a task whose executor does not run.
    pub(super) async fn create_cancel_parts(
        &self,
        task: &Arc<Task>,
        guard: &EngineGuard,
    ) -> Result<CancelParts, ExecutorError> {
        if let Some(shared) = self.host.shared_parts() {
            return Ok(shared.clone().into());
        }
        let (host, task) = (Arc::clone(&self.host), Arc::clone(task));
        let create = move || host.create_cancel_parts(task);
        self.call_factory(create, guard).await
    }

    /// Calls the factory. If a stop of the task comes during the call, the factory has the grace of the stop to return.
    async fn call_factory<T: Send + 'static>(
        &self,
        create: impl FnOnce() -> BoxFuture<'static, Result<T, ExecutorError>> + Send + 'static,
        guard: &EngineGuard,
    ) -> Result<T, ExecutorError> {
        let created = self.user_code("factory", move |_scope| async move { create().await });
        let too_late = async {
            self.execution.scope.stopped().await;
            guard.acknowledge();
            sleep(self.execution.scope.grace()).await;
        };
        let created = tokio::select! {
            biased;
            created = created => created,
            () = too_late => Err(user_code::UserCodeError::TimedOut),
        };
        match created {
            Ok(parts) => parts,
            Err(error) => Err(error.of("factory")),
        }
    }

    /// Calls the clean-up and drops the parts. If a stop waits for the clean-up, the call has at most the grace.
    pub(super) async fn clean_up(&self, parts: Option<CreatedParts>) {
        let (Some(parts), Some(task)) = (parts, self.stream.task().map(Arc::clone)) else {
            return;
        };
        if self.host.shared_parts().is_some() && parts.cleanup().is_none() {
            return; // The manager keeps the shared parts, so no destructor runs here.
        }
        let error = self.execution.error();
        let cleaned = self.user_code("clean-up", move |_scope| async move {
            if let Some(cleanup) = parts.cleanup() {
                cleanup.clean_up(CleanupCx { task, error }).await;
            }
            // Dropped within the call, because the destructors are also code of the embedding program.
            drop(parts);
        });
        let too_late = async {
            self.execution.stop_requested().await;
            sleep(self.execution.scope.grace()).await;
        };
        let cleaned = tokio::select! {
            biased;
            cleaned = cleaned => cleaned,
            () = too_late => Err(user_code::UserCodeError::TimedOut),
        };
        if let Err(error) = cleaned {
            tracing::warn!(%error, "a clean-up");
        }
    }

    /// Runs code of the embedding program in parallel to the executor, within the time limit for such code.
    pub(super) fn user_code<T, F>(
        &self,
        callback: &'static str,
        make: impl FnOnce(Scope) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<T, user_code::UserCodeError>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.user_code_within(self.host.options().user_code_max, callback, make)
    }

    /// Like [`user_code`](Self::user_code), but within `max` if `max` is shorter than the limit.
    pub(super) fn user_code_within<T, F>(
        &self,
        max: Duration,
        callback: &'static str,
        make: impl FnOnce(Scope) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<T, user_code::UserCodeError>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let options = self.host.options();
        let (max, on_panic) = (max.min(options.user_code_max), options.on_panic.clone());
        let scope = self.side_scope.clone();
        async move { user_code::run(&scope, callback, max, on_panic.as_ref(), make).await }.boxed()
    }
}
