//! The engine of one execution: the task that accepts it, drives it, ends it and cleans up.

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Timestamp};
use allstop_log::Version;
use allstop_process::this_process;
use allstop_scope::{EngineGuard, Scope};
use tokio::sync::oneshot;

use super::lifecycle::{LifecycleEvent, failed};
use super::{Execution, ExecutionResult, user_code};
use crate::error::{ExecuteError, TaskStoreError};
use crate::executor::{ExecutorError, TaskParts};
use crate::manager::{ManagerInner, SlotGuard, SlotRequest};
use crate::model::{Task, TaskMessage, TaskRecord};
use crate::task_stream::TaskStream;

/// Reason for an execution.
#[derive(Debug)]
pub(crate) enum ExecutionJob {
    /// A new task: its first record.
    NewTask(TaskRecord),
    /// A message to a task at rest.
    Message(Arc<TaskMessage>),
    /// A task that a crash has interrupted, or whose message was accepted and not started before the crash.
    AfterCrash,
    /// A stop of a task at rest.
    Cancel(Cause),
}

/// Answer for the client whose message started the execution: the task behind the message, and its version.
pub(crate) type Acceptance = oneshot::Receiver<Result<(Version, Arc<Task>), ExecuteError>>;

type AcceptanceSender = oneshot::Sender<Result<(Version, Arc<Task>), ExecuteError>>;

/// Engine of one execution.
pub(crate) struct ExecutionEngine {
    pub(super) manager: Arc<ManagerInner>,
    pub(super) execution: Arc<Execution>,
    pub(super) stream: TaskStream,
    /// Scope of the embedding program's code that runs beside the executor, and that a stop of the task leaves alone.
    pub(super) side_scope: Scope,
}

impl ExecutionEngine {
    pub(crate) fn new(
        manager: Arc<ManagerInner>,
        execution: Arc<Execution>,
        stream: TaskStream,
        side_scope: Scope,
    ) -> Self {
        Self {
            manager,
            execution,
            stream,
            side_scope,
        }
    }

    /// Runs the job to its end. `accepted` gets the answer for the client as soon as its message is durable.
    pub(crate) async fn run(
        mut self,
        job: ExecutionJob,
        slot: SlotRequest,
        accepted: AcceptanceSender,
    ) {
        let guard = self.execution.scope.attach_engine();
        let parts = match (self.load(&job).await, job) {
            (Err(error), _) => {
                self.refuse(error.into(), accepted);
                None
            }
            (Ok(()), ExecutionJob::Cancel(cause)) => self.cancel_at_rest(cause, &guard).await,
            (Ok(()), job) => self.accept_and_run(job, slot, accepted, &guard).await,
        };
        guard.acknowledge();
        drop(guard);
        self.execution.scope.close();
        self.clean_up(parts).await;
        self.manager.release(&self.execution, &self.stream);
        self.side_scope.close();
        self.execution.is_released.send_replace(true);
    }

    async fn load(&mut self, job: &ExecutionJob) -> Result<(), TaskStoreError> {
        match job {
            ExecutionJob::NewTask(_) => Ok(()),
            _ => self.stream.load().await,
        }
    }

    fn refuse(&self, error: ExecuteError, accepted: AcceptanceSender) {
        self.execution
            .finish(ExecutionResult::NotStarted(error.clone()));
        // The client may be gone.
        let _unheard = accepted.send(Err(error));
    }

    async fn accept_and_run(
        &mut self,
        job: ExecutionJob,
        slot: SlotRequest,
        accepted: AcceptanceSender,
        guard: &EngineGuard,
    ) -> Option<TaskParts> {
        let is_after_crash = matches!(job, ExecutionJob::AfterCrash);
        let acceptance = match job {
            ExecutionJob::NewTask(created) => Some(created),
            ExecutionJob::Message(message) => Some(TaskRecord::MessageReceived {
                message,
                at: self.now(),
            }),
            ExecutionJob::AfterCrash | ExecutionJob::Cancel(_) => None,
        };
        let is_granted = matches!(slot, SlotRequest::Granted(_));
        let was_executing = self.stream.task().is_some_and(|task| task.is_executing);
        let records: Vec<_> = acceptance
            .into_iter()
            .chain((is_granted && !was_executing).then(|| self.started()))
            .collect();
        if let Err(error) = self.stream.append(records).await {
            self.refuse(error.into(), accepted);
            return None;
        }
        self.manager.note(&self.stream);
        let task = Arc::clone(self.stream.task()?);
        self.execution.is_accepted.send_replace(true);
        let _unheard = accepted.send(Ok((self.stream.version(), task)));
        let slot = self.wait_for_slot(slot).await;
        if !was_executing && !self.is_executing() {
            let started = self.started();
            if let Err(error) = self.stream.append(vec![started]).await {
                // Nothing has run. The records say so, and the next start of the manager runs the task.
                self.execution.finish(ExecutionResult::NotConfirmed(error));
                return None;
            }
        }
        let was_interrupted = is_after_crash && was_executing;
        self.run_started(slot, was_interrupted, guard).await
    }

    /// Runs the executor of a started execution. Without a slot a stop was first.
    async fn run_started(
        &mut self,
        slot: Option<SlotGuard>,
        was_interrupted: bool,
        guard: &EngineGuard,
    ) -> Option<TaskParts> {
        let task = Arc::clone(self.stream.task()?);
        let parts = self.create_parts(&task).await;
        let crash = || Cause::new(CauseKind::Failure).detail("crash");
        match parts {
            Ok(parts) if was_interrupted && !parts.executor.can_resume(&task) => {
                let reason = "the process ended during the execution".into();
                self.end(failed(crash(), reason, self.now())).await;
                Some(parts)
            }
            Ok(parts) => {
                self.run_executor(&parts, was_interrupted, guard).await;
                drop(slot);
                Some(parts)
            }
            Err(error) => {
                let event = LifecycleEvent::Failed(Arc::clone(error.message()));
                self.end_without_executor(event, guard).await;
                None
            }
        }
    }

    async fn wait_for_slot(&self, slot: SlotRequest) -> Option<SlotGuard> {
        match slot {
            SlotRequest::Granted(slot) => Some(slot),
            SlotRequest::Waiting(waiting) => {
                tokio::select! {
                    biased;
                    () = self.execution.scope.stopped() => None,
                    slot = waiting.granted() => slot,
                }
            }
            SlotRequest::NotNeeded => None,
        }
    }

    pub(super) async fn create_parts(&self, task: &Arc<Task>) -> Result<TaskParts, ExecutorError> {
        let factory = Arc::clone(&self.manager.factory);
        let task = Arc::clone(task);
        let created = self.user_code("factory", move |_scope| async move {
            factory.create(task).await
        });
        match created.await {
            Ok(parts) => parts,
            Err(error) => Err(ExecutorError::new(format!("the factory {error}"))),
        }
    }

    async fn clean_up(&self, parts: Option<TaskParts>) {
        let (Some(cleanup), Some(task)) = (
            parts.and_then(|parts| parts.cleanup),
            self.stream.task().map(Arc::clone),
        ) else {
            return;
        };
        let cleaned = self.user_code("clean-up", move |_scope| async move {
            cleanup.clean_up(task).await;
        });
        if let Err(error) = cleaned.await {
            tracing::warn!(%error, "a clean-up");
        }
    }

    /// Runs code of the embedding program beside the executor, within the limit for it.
    pub(super) async fn user_code<T, F>(
        &self,
        place: &'static str,
        make: impl FnOnce(Scope) -> F + Send + 'static,
    ) -> Result<T, user_code::UserCodeError>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let options = &self.manager.options;
        let (max, on_panic) = (options.user_code_max, options.on_panic.as_ref());
        user_code::run(&self.side_scope, place, max, on_panic, make).await
    }

    pub(super) fn started(&self) -> TaskRecord {
        TaskRecord::ExecutionStarted {
            epoch: self.stream.task().map_or(0, |task| task.epoch) + 1,
            process: this_process().clone(),
            at: self.now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.manager.options.now)()
    }

    pub(super) fn is_executing(&self) -> bool {
        self.stream.task().is_some_and(|task| task.is_executing)
    }
}
