//! The engine of one execution: the Tokio task that accepts the execution, runs it, ends it and cleans up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use allstop_core::receipt::{
    ItemKind, ItemState, NotStoppedReason, ReceiptItem, StopFindings, StopInfo,
};
use allstop_core::{Cause, CauseKind, Extent, Receipt, StopId, Timestamp, TraceContext};
use allstop_process::this_process;
use allstop_scope::{EngineGuard, Scope};
use futures::FutureExt as _;
use tokio::time::{sleep, timeout};
use ulid::Ulid;

use super::client_answer::{AcceptanceSender, ClientAnswer};
use super::host::ExecutionHost;
use super::lifecycle::{LifecycleEvent, crashed, failed};
use super::repeat_pause::take_over_pause;
use super::slot::{SlotGuard, SlotRequest};
use super::{Execution, ExecutionResult};
use crate::error::TaskStoreError;
use crate::executor::{CancelParts, Cleanup, ExecutorError, TaskParts};
use crate::model::{Task, TaskMessage, TaskRecord};
use crate::observer::ExecutionObserver;
use crate::task_stream::TaskStream;

/// Reason for an execution.
#[derive(Debug)]
pub(crate) enum ExecutionJob {
    /// A new task, with its first record.
    NewTask(TaskRecord),
    /// A message to a task at rest.
    Message {
        /// Principal that sent the message.
        owner: Arc<str>,
        /// The message.
        message: Arc<TaskMessage>,
    },
    /// A task whose log is the only source: a crash has interrupted its execution, or a message was accepted and has
    /// not started an execution.
    FromLog,
    /// A stop of a task at rest.
    Cancel(Cause),
}

/// The execution has left the queue without a start, and waits in the store for the next manager.
struct LeftInStore;

/// Parts that the factory has created for this engine.
pub(super) enum CreatedParts {
    Execution(TaskParts),
    Cancel(CancelParts),
}

impl CreatedParts {
    pub(super) fn cleanup(&self) -> Option<&Arc<dyn Cleanup>> {
        match self {
            Self::Execution(parts) => parts.cleanup.as_ref(),
            Self::Cancel(parts) => parts.cleanup.as_ref(),
        }
    }
}

/// Engine of one execution.
pub(crate) struct ExecutionEngine {
    pub(super) host: Arc<dyn ExecutionHost>,
    pub(super) execution: Arc<Execution>,
    pub(super) stream: TaskStream,
    /// Scope for code of the embedding program that runs in parallel to the executor. A stop of the task does not cover
    /// this scope.
    pub(super) side_scope: Scope,
    /// The task whose execution this engine takes over from another worker. `None` if the engine takes no execution
    /// over, or after the receipt of a stop contains the other worker.
    pub(super) taken_over: Option<Arc<Task>>,
    /// True if a crash has interrupted an earlier execution, and the executor has not started again.
    pub(super) is_interrupted: bool,
    /// `None` if the manager has no observer, or before the execution is accepted.
    pub(super) observer: Option<Box<dyn ExecutionObserver>>,
    /// True if an executor could not be stopped.
    pub(super) is_executor_left: bool,
}

impl ExecutionEngine {
    pub(crate) fn new(
        host: Arc<dyn ExecutionHost>,
        execution: Arc<Execution>,
        stream: TaskStream,
        side_scope: Scope,
    ) -> Self {
        Self {
            host,
            execution,
            stream,
            side_scope,
            taken_over: None,
            is_interrupted: false,
            observer: None,
            is_executor_left: false,
        }
    }

    /// Runs the job until it is complete. `accepted` sends the answer to the client after the message of the client is
    /// durable.
    pub(crate) async fn run(
        mut self,
        job: ExecutionJob,
        slot: SlotRequest,
        accepted: AcceptanceSender,
    ) {
        let guard = self.execution.scope.attach_engine();
        let work = self.work(job, slot, accepted, &guard);
        let parts = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(parts) => parts,
            Err(_panic) => {
                self.end_after_panic(&guard).await;
                None
            }
        };
        guard.acknowledge();
        drop(guard);
        self.execution.scope.close();
        if self.stream.is_behind() && self.execution.worker.is_none() {
            // The store may contain records that this engine has not read: records of other processes, or the records
            // of the last append. The feed passes records to subscribers, and the subscribers need these records too.
            let reload = AssertUnwindSafe(self.reload()).catch_unwind().await;
            if !matches!(reload, Ok(Ok(()))) {
                tracing::warn!(task = %self.stream.id(), "the records of a task are not read again");
            }
        }
        self.clean_up(parts).await;
    }

    async fn work(
        &mut self,
        job: ExecutionJob,
        slot: SlotRequest,
        accepted: AcceptanceSender,
        guard: &EngineGuard,
    ) -> Option<CreatedParts> {
        match job {
            ExecutionJob::Cancel(cause) => {
                let parts = self.cancel_at_rest(cause, guard).await;
                parts.map(CreatedParts::Cancel)
            }
            job => {
                let follow_up = match &job {
                    ExecutionJob::Message { owner, message } => {
                        Some((Arc::clone(owner), message.id.clone()))
                    }
                    _ => None,
                };
                let client = ClientAnswer::new(accepted, follow_up);
                if !matches!(job, ExecutionJob::NewTask(_))
                    && let Err(error) = self.load().await
                {
                    self.refuse(error.into(), client);
                    return None;
                }
                self.accept_and_run(job, slot, client, guard).await
            }
        }
    }

    /// Reads the task. The time limit is the limit of a write.
    pub(super) async fn load(&mut self) -> Result<(), TaskStoreError> {
        let max = self.host.options().ending_write_max;
        let loaded = timeout(max, self.stream.load()).await;
        loaded.unwrap_or(Err(TaskStoreError::NoAnswer))
    }

    async fn reload(&mut self) -> Result<(), TaskStoreError> {
        let max = self.host.options().ending_write_max;
        let loaded = timeout(max, self.stream.reload()).await;
        loaded.unwrap_or(Err(TaskStoreError::NoAnswer))
    }

    /// Ends the task after a panic of the engine. The panic is a bug in the engine or in the embedding program.
    async fn end_after_panic(&mut self, guard: &EngineGuard) {
        let cause = || Cause::new(CauseKind::Failure).detail("the engine panicked");
        guard.acknowledge();
        let _receipt = self.execution.stop(cause()).await;
        let has_ended = matches!(
            self.execution.present_result(),
            Some(ExecutionResult::Ended(_))
        );
        if has_ended || self.stream.task().is_none() {
            return;
        }
        let end = failed(
            cause(),
            "the engine of the task panicked".into(),
            self.now(),
        );
        let ended = AssertUnwindSafe(self.end(Vec::new(), end)).catch_unwind();
        if ended.await.is_err() {
            tracing::error!(task = %self.stream.id(), "the end of a task is not stored");
        }
    }

    async fn accept_and_run(
        &mut self,
        job: ExecutionJob,
        slot: SlotRequest,
        client: ClientAnswer,
        guard: &EngineGuard,
    ) -> Option<CreatedParts> {
        let is_from_client = !matches!(job, ExecutionJob::FromLog);
        let record = match job {
            ExecutionJob::NewTask(created) => Some(created),
            ExecutionJob::Message { message, .. } => Some(TaskRecord::MessageReceived {
                message,
                trace: self.execution.trace.clone(),
                at: self.now(),
            }),
            ExecutionJob::FromLog | ExecutionJob::Cancel(_) => None,
        };
        let was_interrupted = self.is_executing();
        let was_handed_over = self
            .stream
            .task()
            .is_some_and(|it| it.handed_over.is_some());
        self.check_lease();
        let starts_now = matches!(slot, SlotRequest::Granted(_))
            && !was_interrupted
            && !self.execution.has_lost_lease();
        let records = record.into_iter().chain(starts_now.then(|| self.started()));
        self.accept(records.collect(), client, guard).await?;
        if let Some(observer) = self
            .host
            .options()
            .observer
            .as_ref()
            .filter(|_| is_from_client)
        {
            observer.message_accepted();
        }
        if was_interrupted {
            return self.run_interrupted(slot, guard).await;
        }
        let Ok(slot) = self.wait_for_slot(slot, guard).await else {
            return None;
        };
        if !self.is_executing()
            && let Err(error) = self.store_start().await
        {
            drop(slot);
            self.end_unstarted(&error, guard).await;
            return None;
        }
        let task = Arc::clone(self.stream.task()?);
        match self.create_parts(&task, guard).await {
            Ok(parts) => {
                self.run_executor(&parts, slot, was_handed_over, guard)
                    .await;
                Some(CreatedParts::Execution(parts))
            }
            Err(error) => {
                drop(slot);
                self.end_without_parts(&error, guard).await
            }
        }
    }

    /// Stores the start of an execution that had to wait. If a stop comes first, nothing is stored here: the end of the
    /// execution then includes its start.
    async fn store_start(&mut self) -> Result<(), TaskStoreError> {
        self.check_lease();
        if self.execution.is_stopping() {
            return Ok(());
        }
        let started = self.started();
        tokio::select! {
            biased;
            written = self.stream.append(vec![started]) => written,
            () = self.execution.scope.stopped() => Ok(()),
        }
    }

    /// Stops the execution if its worker has lost its lease, and so may no longer run tasks.
    pub(super) fn check_lease(&self) {
        if !self.host.may_start(self.execution.worker()) {
            let cause = Cause::new(CauseKind::LeaseLost).detail("the lease was not renewed");
            drop(self.execution.stop(cause));
        }
    }

    async fn end_unstarted(&mut self, error: &TaskStoreError, guard: &EngineGuard) {
        let reason = format!("the start was not stored: {error}").into();
        let event = LifecycleEvent::Failed(reason);
        self.end_without_executor(event, guard).await;
    }

    /// Continues or ends an execution that a crash has interrupted. Only an execution that continues needs a slot.
    async fn run_interrupted(
        &mut self,
        slot: SlotRequest,
        guard: &EngineGuard,
    ) -> Option<CreatedParts> {
        let task = Arc::clone(self.stream.task()?);
        self.is_interrupted = true;
        self.taken_over = task.worker.is_some().then(|| Arc::clone(&task));
        // The start record counts the take-over. The record must be stored before any code of the embedding program
        // runs, because this code may end the process. A node without a lease only ends the task, with one record: until
        // then the task stays with the lost worker.
        let only_ends = self.execution.worker.is_none() && task.stop_requested.is_some();
        if self.taken_over.is_some()
            && !only_ends
            && let Err(error) = self.store_start().await
        {
            drop(slot);
            self.end_unstarted(&error, guard).await;
            return None;
        }
        if let Some(cause) = task.stop_requested.clone() {
            drop(slot);
            return match self.create_cancel_parts(&task, guard).await {
                Ok(parts) => {
                    drop(self.execution.stop(cause));
                    self.end_before_start(&parts, guard).await;
                    Some(CreatedParts::Cancel(parts))
                }
                Err(error) => self.end_without_parts(&error, guard).await,
            };
        }
        let parts = match self.create_parts(&task, guard).await {
            Ok(parts) => parts,
            Err(error) => return self.end_without_parts(&error, guard).await,
        };
        let executor = Arc::clone(&parts.executor);
        let can_resume = self
            .user_code("executor", move |_scope| async move {
                executor.can_resume(&task)
            })
            .await;
        if can_resume == Ok(true) {
            let Ok(slot) = self.wait_for_slot(slot, guard).await else {
                return Some(CreatedParts::Execution(parts));
            };
            if self.taken_over.is_none()
                && let Err(error) = self.store_start().await
            {
                drop(slot);
                self.end_unstarted(&error, guard).await;
            } else {
                // The start record is stored before the pause, so a stop during the pause finds the execution at this
                // worker.
                let take_overs = self.stream.task().map_or(0, |task| task.take_overs);
                self.wait(sleep(take_over_pause(take_overs)), guard).await;
                self.run_executor(&parts, slot, true, guard).await;
            }
        } else {
            drop(slot);
            let (reason, lost) = match &self.taken_over {
                Some(task) => ("its worker was lost during the execution", Some(task.epoch)),
                None => ("the process ended during the execution", None),
            };
            let end = crashed(reason.into(), lost, self.now());
            self.end(Vec::new(), end).await;
        }
        Some(CreatedParts::Execution(parts))
    }

    /// Ends an execution whose parts the factory could not create.
    async fn end_without_parts(
        &mut self,
        error: &ExecutorError,
        guard: &EngineGuard,
    ) -> Option<CreatedParts> {
        let event = LifecycleEvent::Failed(Arc::clone(error.message()));
        self.end_without_executor(event, guard).await;
        None
    }

    /// Adds an item for the previous worker to the receipt of a stop, unless the executor has started here. Returns
    /// true if there was a previous worker.
    pub(super) fn add_lost_worker(&mut self) -> bool {
        let Some(task) = self.taken_over.take() else {
            return false;
        };
        let lost = receipt_of_lost_worker(&task, self.execution.scope(), self.now());
        self.execution.part_receipts.add(lost);
        true
    }

    /// Waits for the slot. `Ok(None)` if the execution needs no slot, or if a stop came first.
    ///
    /// # Errors
    /// If the manager has closed its queue: the execution stays in the store, and this engine must write nothing.
    async fn wait_for_slot(
        &mut self,
        slot: SlotRequest,
        guard: &EngineGuard,
    ) -> Result<Option<SlotGuard>, LeftInStore> {
        let waiting = match slot {
            SlotRequest::Granted(slot) => return Ok(Some(slot)),
            SlotRequest::NotNeeded => return Ok(None),
            SlotRequest::Waiting(waiting) => waiting,
        };
        let slot = self.wait(waiting.granted(), guard).await.flatten();
        // The stop of a shutdown may arrive together with the closing of the queue. A stop of the task itself counts.
        let cause = self.execution.scope.cause();
        let is_stopped = cause.is_some_and(|cause| cause.kind != CauseKind::Shutdown);
        if slot.is_some() || is_stopped || !self.host.is_queue_closed() {
            return Ok(slot);
        }
        if let Some(observer) = &mut self.observer {
            observer.kept_waiting();
        }
        self.host.keep_waiting(&self.stream);
        self.execution.finish(ExecutionResult::KeptWaiting);
        self.stream.feed().leave();
        Err(LeftInStore)
    }

    /// Waits for a future, or until the execution is stopped. If another process asks the execution to look, reads the
    /// log, and applies a stop request from the log.
    async fn wait<T>(&mut self, what: impl Future<Output = T>, guard: &EngineGuard) -> Option<T> {
        let execution = Arc::clone(&self.execution);
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                () = execution.scope.stopped() => {
                    guard.acknowledge();
                    return None;
                }
                value = &mut what => return Some(value),
                () = execution.look.notified() => {
                    // If the store fails permanently, the start of the execution will fail too.
                    let _looked = self.stream.look().await;
                    let task = self.stream.task();
                    if let Some(cause) = task.and_then(|task| task.stop_requested.clone()) {
                        drop(execution.stop(cause));
                    }
                    execution.looks.send_modify(|count| *count += 1);
                }
            }
        }
    }

    /// Starts the observation of an accepted execution.
    pub(super) fn observe(&mut self) {
        let observer = self.host.options().observer.as_ref();
        self.observer = observer.zip(self.stream.task()).map(|(observer, task)| {
            let trace = self.execution.trace.as_ref();
            observer.accepted(task, trace)
        });
    }

    /// Trace context of the work.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let own = self.observer.as_ref().and_then(|observer| observer.trace());
        own.or_else(|| self.execution.trace.clone())
    }

    pub(super) fn started(&self) -> TaskRecord {
        TaskRecord::ExecutionStarted {
            epoch: self.stream.task().map_or(0, |task| task.epoch) + 1,
            process: this_process().clone(),
            worker: self.execution.worker.clone(),
            at: self.now(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.host.options().now)()
    }

    pub(super) fn is_executing(&self) -> bool {
        self.stream.task().is_some_and(|task| task.is_executing)
    }
}

/// Creates the receipt for the work of the previous worker. This process cannot determine the state of that work.
fn receipt_of_lost_worker(task: &Task, scope: &Scope, now: Timestamp) -> Arc<Receipt> {
    let id = task
        .worker
        .as_ref()
        .map_or("process", |worker| worker.as_str());
    let item = lost_worker(id);
    let request = StopInfo {
        stop_id: StopId::new(Ulid::generate().to_string()),
        target: scope.label(),
        extent: Extent::Subtree,
        cause: scope.cause().unwrap_or_else(|| Cause::new(CauseKind::User)),
        requested_at: now,
    };
    let findings = StopFindings {
        items: Arc::from([item]),
        ..StopFindings::default()
    };
    Arc::new(Receipt::of_stop(request, findings))
}

/// Wakes all waiters and frees the task. This happens at every exit of the engine, even if its runtime ends.
impl Drop for ExecutionEngine {
    fn drop(&mut self) {
        self.execution.scope.close();
        if self.execution.present_result().is_none() {
            let error = TaskStoreError::Indeterminate;
            self.execution.finish(ExecutionResult::NotConfirmed(error));
        }
        if self.stream.is_behind() {
            self.stream.feed().forget();
        }
        self.host.release(&self.stream);
        self.side_scope.close();
        self.execution.is_released.send_replace(true);
    }
}

/// Item for the work of a lost worker, whose end no process has confirmed.
pub(crate) fn lost_worker(id: &str) -> ReceiptItem {
    let state = ItemState::Unreachable {
        why: NotStoppedReason::WatcherGone,
    };
    let mut item = ReceiptItem::new(ItemKind::Remote, id, "worker of the task before", state);
    item.note =
        Some("the worker lost its lease, and then stops its work; the end is not confirmed".into());
    item
}
