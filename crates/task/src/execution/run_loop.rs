//! The loop of a running execution: it selects one event, decides synchronously, and carries out the effect.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{
    Deadline, EngineGuard, Scope, ScopeOptions, StopRequest, WorkHandle, WorkLost, WorkSpec,
    instant_after,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::lifecycle::{ExecutorEnd, Lifecycle, LifecycleEffect, LifecycleEvent};
use super::{ExecutionEngine, user_code};
use crate::event_writer::{EventWriter, WeakEventWriter};
use crate::executor::{
    CancelCx, ExecutionCx, ExecutorError, ExecutorReturn, ProcessorDecision, TaskParts,
};
use crate::model::{Task, TaskEvent, TaskMessage, TaskRecord};

/// Time that an executor has after the end of its task before its scope is stopped.
const LINGER_MAX: Duration = Duration::from_secs(2);

type ExecutorResult = Result<ExecutorReturn, ExecutorError>;

/// A running execution.
struct RunLoop<'a> {
    engine: &'a mut ExecutionEngine,
    parts: &'a TaskParts,
    guard: &'a EngineGuard,
    lifecycle: Lifecycle,
    queue: mpsc::Receiver<TaskEvent>,
    /// True once every writer is gone and every event was read.
    is_queue_done: bool,
    writer: WeakEventWriter,
    /// Scope of the executor. It has no decision, so it can be stopped after the end of the task.
    work_scope: Scope,
    /// `None` once it has ended.
    executor: Option<WorkHandle<ExecutorResult>>,
    is_stopped: bool,
    account: Option<BoxFuture<'static, Arc<Receipt>>>,
    receipt: Option<Arc<Receipt>>,
    /// The canceler's call, while it runs.
    canceling: Option<BoxFuture<'static, ()>>,
    inactive_at: Option<Instant>,
}

enum RunEvent {
    Wrote(TaskEvent),
    WritersGone,
    ExecutorEnded(Result<ExecutorResult, WorkLost>),
    Stopped,
    Accounted(Arc<Receipt>),
    CancelerReturned,
    Inactive,
}

impl ExecutionEngine {
    /// Runs the executor until the end of the execution is stored and nothing of it runs any more.
    pub(super) async fn run_executor(
        &mut self,
        parts: &TaskParts,
        is_resumed: bool,
        guard: &EngineGuard,
    ) {
        let Some(task) = self.stream.task().map(Arc::clone) else {
            return;
        };
        let (writer, queue) = EventWriter::new(self.manager.options.event_queue_len_max);
        let weak_writer = writer.downgrade();
        let started = self.start_executor(parts, task, writer, is_resumed);
        let Some((work_scope, executor)) = started else {
            let reason = LifecycleEvent::Failed("the task was stopped before its start".into());
            return self.end_without_executor(reason, guard).await;
        };
        let mut run = RunLoop {
            lifecycle: Lifecycle::new(Arc::clone(&self.execution.decision)),
            engine: self,
            parts,
            guard,
            queue,
            is_queue_done: false,
            writer: weak_writer,
            work_scope,
            executor: Some(executor),
            is_stopped: false,
            account: None,
            receipt: None,
            canceling: None,
            inactive_at: None,
        };
        run.reset_inactivity();
        let end = run.drive().await;
        run.queue.close();
        let (work_scope, executor) = (run.work_scope, run.executor);
        self.end_with(end).await;
        end_leftover(work_scope, executor).await;
    }

    fn start_executor(
        &self,
        parts: &TaskParts,
        task: Arc<Task>,
        events: EventWriter,
        is_resumed: bool,
    ) -> Option<(Scope, WorkHandle<ExecutorResult>)> {
        let scope = self.execution.scope();
        let options = &self.manager.options;
        if let Some(max) = options.execution_max {
            scope.arm(Deadline {
                at: instant_after(Instant::now(), max),
                stops: None,
                detail: format!("execution limit of {max:?}").into(),
                extent: Extent::Subtree,
                bystanders: Vec::new(),
            });
        }
        let work_scope = scope.child(scope.label(), ScopeOptions::default()).ok()?;
        let cx = ExecutionCx {
            message: last_message(&task)?,
            task,
            scope: work_scope.clone(),
            events,
            is_resumed,
        };
        let executor = Arc::clone(&parts.executor);
        let code = async move { executor.execute(cx).await };
        let code = user_code::reporting_panics("executor", options.on_panic.clone(), code);
        let spec = WorkSpec::new(ItemKind::Future, "executor").id("executor");
        let executor = work_scope.spawn(spec, |_cx| code).ok()?;
        Some((work_scope, executor))
    }
}

/// The message that the execution answers.
fn last_message(task: &Task) -> Option<Arc<TaskMessage>> {
    task.history.last().map(Arc::clone)
}

/// Ends what an executor left running behind the end of its task.
async fn end_leftover(work_scope: Scope, executor: Option<WorkHandle<ExecutorResult>>) {
    if let Some(executor) = executor {
        // Its result changes nothing any more.
        let _late = tokio::time::timeout(LINGER_MAX, executor).await;
    }
    if !work_scope.is_quiet() {
        let cause = Cause::new(CauseKind::Parent).detail("the task has ended");
        let receipt = work_scope
            .stop(StopRequest::new(Extent::Subtree, cause))
            .await;
        if !receipt.quiet() {
            tracing::warn!(?receipt, "work of an ended task still runs");
        }
    }
    work_scope.close();
}

impl RunLoop<'_> {
    /// Runs until the end is decided. Returns the records that end the execution.
    async fn drive(&mut self) -> Vec<TaskRecord> {
        loop {
            let event = self.next_event().await;
            let mut records = Vec::new();
            let mut end = self.handle(event, &mut records).await;
            // One append for all that is there: an executor that writes three events at once waits once. A processor
            // sees the task behind the event before, so there each event has its own.
            while end.is_none()
                && self.parts.processor.is_none()
                && let Ok(event) = self.queue.try_recv()
            {
                end = self.handle(RunEvent::Wrote(event), &mut records).await;
            }
            if let Some(end) = end {
                records.push(end);
                return records;
            }
            if !records.is_empty()
                && let Err(error) = self.engine.stream.append(records).await
            {
                let reason = format!("an event was not stored: {error}");
                let failed = self.decide(LifecycleEvent::Failed(reason.into()), &mut Vec::new());
                if let Some(end) = failed {
                    return vec![end];
                }
            }
        }
    }

    async fn next_event(&mut self) -> RunEvent {
        let is_stopped = self.is_stopped;
        let inactive_at = self.inactive_at.unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            () = self.engine.execution.scope.stopped(), if !is_stopped => RunEvent::Stopped,
            event = self.queue.recv(), if !self.is_queue_done => {
                event.map_or(RunEvent::WritersGone, RunEvent::Wrote)
            }
            ended = pending_or(&mut self.executor) => RunEvent::ExecutorEnded(ended),
            () = pending_or(&mut self.canceling) => RunEvent::CancelerReturned,
            receipt = pending_or(&mut self.account) => RunEvent::Accounted(receipt),
            () = sleep_until(inactive_at), if !is_stopped && self.inactive_at.is_some() => RunEvent::Inactive,
        }
    }

    /// Handles one event: adds records, or returns the record of the end.
    async fn handle(
        &mut self,
        event: RunEvent,
        records: &mut Vec<TaskRecord>,
    ) -> Option<TaskRecord> {
        match event {
            RunEvent::Wrote(event) => {
                self.reset_inactivity();
                let event = self.process(event).await?;
                self.decide(event, records)
            }
            RunEvent::WritersGone => {
                self.is_queue_done = true;
                // An executor that still runs has dropped its writer: its return follows.
                self.executor.is_none().then_some(())?;
                self.decide(LifecycleEvent::Silent(ExecutorEnd::Returned), records)
            }
            RunEvent::ExecutorEnded(ended) => {
                self.executor = None;
                self.executor_ended(ended, records).await
            }
            RunEvent::Stopped => {
                self.stopped(records);
                None
            }
            RunEvent::Accounted(receipt) => {
                self.account = None;
                self.receipt = Some(receipt);
                self.end_stopped(records).await
            }
            RunEvent::CancelerReturned => {
                self.canceling = None;
                self.end_stopped(records).await
            }
            RunEvent::Inactive => {
                let max = self
                    .engine
                    .manager
                    .options
                    .inactivity_max
                    .unwrap_or_default();
                let cause =
                    Cause::new(CauseKind::Inactivity).detail(format!("no event for {max:?}"));
                // The loop sees the stop, and waits for its receipt there.
                drop(self.engine.execution.stop(cause));
                None
            }
        }
    }

    fn decide(
        &mut self,
        event: LifecycleEvent,
        records: &mut Vec<TaskRecord>,
    ) -> Option<TaskRecord> {
        let is_failure = matches!(event, LifecycleEvent::Failed(_));
        match self.lifecycle.handle(event, self.engine.now()) {
            LifecycleEffect::None => None,
            LifecycleEffect::Append(record) => {
                records.push(record);
                None
            }
            LifecycleEffect::End(record) => {
                if is_failure {
                    // The executor works for nothing from here on; its end is awaited behind the write.
                    let cause = Cause::new(CauseKind::Failure).detail("the task has failed");
                    drop(
                        self.work_scope
                            .stop(StopRequest::new(Extent::Subtree, cause)),
                    );
                }
                Some(record)
            }
        }
    }

    /// Passes an event through the processor. `None`: it is dropped.
    async fn process(&mut self, event: TaskEvent) -> Option<LifecycleEvent> {
        let Some(processor) = &self.parts.processor else {
            return Some(LifecycleEvent::Wrote(event));
        };
        let task = Arc::clone(self.engine.stream.task()?);
        let processor = Arc::clone(processor);
        let decision = self
            .engine
            .user_code("processor", move |_scope| async move {
                processor.process(event, task).await
            });
        match decision.await {
            Ok(ProcessorDecision::Keep(event) | ProcessorDecision::Replace(event)) => {
                Some(LifecycleEvent::Wrote(event))
            }
            Ok(ProcessorDecision::Drop) | Err(user_code::UserCodeError::Stopped) => None,
            Ok(ProcessorDecision::Fail(reason)) => Some(LifecycleEvent::Failed(reason)),
            Err(error) => Some(LifecycleEvent::Failed(
                format!("the processor {error}").into(),
            )),
        }
    }

    async fn executor_ended(
        &mut self,
        ended: Result<ExecutorResult, WorkLost>,
        records: &mut Vec<TaskRecord>,
    ) -> Option<TaskRecord> {
        // What it wrote before its end comes first.
        while let Ok(event) = self.queue.try_recv() {
            let event = self.process(event).await;
            let end = event.and_then(|event| self.decide(event, records));
            if end.is_some() {
                return end;
            }
        }
        let end = match ended {
            Ok(Ok(ExecutorReturn::ContinuesElsewhere)) if !self.queue.is_closed() => return None,
            Ok(Ok(_)) => ExecutorEnd::Returned,
            Ok(Err(error)) => match self.process_error(&error) {
                Some(event) => return self.decide(LifecycleEvent::Wrote(event), records),
                None => ExecutorEnd::Failed(Arc::clone(error.message())),
            },
            Err(WorkLost::Panicked) => ExecutorEnd::Panicked,
            Err(WorkLost::Dropped | WorkLost::NoThread) => ExecutorEnd::Dropped,
        };
        self.decide(LifecycleEvent::Silent(end), records)
    }

    fn process_error(&self, error: &ExecutorError) -> Option<TaskEvent> {
        let processor = self.parts.processor.as_ref()?;
        let task = self.engine.stream.task()?;
        let call = std::panic::AssertUnwindSafe(|| processor.process_error(error, task));
        std::panic::catch_unwind(call).ok().flatten()
    }

    fn stopped(&mut self, records: &mut Vec<TaskRecord>) {
        self.is_stopped = true;
        let scope = &self.engine.execution.scope;
        let (Some(cause), Some(account)) =
            (scope.cause(), scope.account(Extent::Subtree, Vec::new()))
        else {
            return;
        };
        self.guard.acknowledge();
        self.account = Some(async move { account.receipt().await }.boxed());
        let end = self.decide(LifecycleEvent::Stopped(cause.clone()), records);
        debug_assert!(end.is_none(), "a stop ends with its receipt");
        self.canceling = self.call_canceler(cause);
    }

    fn call_canceler(&self, cause: Cause) -> Option<BoxFuture<'static, ()>> {
        let canceler = Arc::clone(self.parts.canceler.as_ref()?);
        let task = Arc::clone(self.engine.stream.task()?);
        let events = self.writer.upgrade()?;
        let options = &self.engine.manager.options;
        let (max, on_panic) = (options.user_code_max, options.on_panic.clone());
        let side_scope = self.engine.side_scope.clone();
        let call = async move {
            let make = move |scope| async move {
                let cx = CancelCx {
                    task,
                    cause,
                    scope,
                    events,
                };
                canceler.cancel(cx).await
            };
            let asked = user_code::run(&side_scope, "canceler", max, on_panic.as_ref(), make);
            match asked.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a canceler refused; the task is stopped"),
                Err(error) => tracing::warn!(%error, "a canceler"),
            }
        };
        Some(call.boxed())
    }

    /// The end of a stopped execution, once it has its receipt and the canceler has returned.
    async fn end_stopped(&mut self, records: &mut Vec<TaskRecord>) -> Option<TaskRecord> {
        if self.canceling.is_some() {
            return None;
        }
        let receipt = self.receipt.take()?;
        while let Ok(event) = self.queue.try_recv() {
            let event = self.process(event).await;
            let end = event.and_then(|event| self.decide(event, records));
            debug_assert!(end.is_none(), "a stopped execution ends with its receipt");
        }
        self.decide(LifecycleEvent::Accounted(receipt), records)
    }

    fn reset_inactivity(&mut self) {
        let max = self.engine.manager.options.inactivity_max;
        self.inactive_at = max.map(|max| instant_after(Instant::now(), max));
    }
}

/// The future's output, if there is a future.
async fn pending_or<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
