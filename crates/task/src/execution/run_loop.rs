//! The loop of a running execution. The loop selects one event at a time, decides synchronously, and executes the
//! effect.
//!
//! Invariants:
//! 1. The loop awaits only two things: its next event, and an append that a stop can interrupt. Therefore neither code
//!    of the embedding program nor a store can delay the answer to a stop.
//! 2. A stop ends within the grace (the time before the stop uses force) and the time for force, even if a writer still
//!    writes events: see [`RunLoop::end_by`].

use std::sync::Arc;

use allstop_core::{Cause, CauseKind, Extent, Receipt};
use allstop_scope::{
    EngineGuard, FORCE_MAX, Scope, StopRequest, WorkHandle, WorkLost, instant_after,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::ExecutionEngine;
use super::lifecycle::{ExecutorEnd, Lifecycle, LifecycleEffect, LifecycleEvent};
use super::slot::SlotGuard;
use super::user_code::ChosenError;
use super::work_scope::{ExecutorResult, StartedExecutor, end_leftover};
use crate::error::TaskStoreError;
use crate::event_writer::EventWriter;
use crate::executor::{CancelCx, CancelParts, ExecutorError, ExecutorReturn, TaskParts};
use crate::model::{NESTING_MAX, TaskEvent, TaskRecord, is_too_deep};

/// A running execution.
struct RunLoop<'a> {
    engine: &'a mut ExecutionEngine,
    parts: &'a TaskParts,
    guard: &'a EngineGuard,
    lifecycle: Lifecycle,
    executor_events: EventQueue,
    canceler_events: EventQueue,
    /// Scope of the executor. The decision about the end does not apply to this scope, so the scope can be stopped
    /// after the end of the task.
    work_scope: Scope,
    /// `None` after the executor has ended.
    executor: Option<WorkHandle<ExecutorResult>>,
    /// End of the executor's code. The loop handles this end only after all earlier events.
    executor_end: Option<ExecutorEnd>,
    /// Error from the panic handler, after the executor has panicked.
    panic_error: ChosenError,
    /// The running call of the processor, if any. The loop reads no further event during the call.
    processing: Option<BoxFuture<'static, Vec<LifecycleEvent>>>,
    is_stopped: bool,
    account: Option<BoxFuture<'static, Arc<Receipt>>>,
    receipt: Option<Arc<Receipt>>,
    /// The running call of the canceler, if any.
    canceling: Option<BoxFuture<'static, ()>>,
    /// Time at which a stopped execution ends at the latest, even if its queues still contain events.
    end_by: Instant,
    inactive_at: Option<Instant>,
    /// Records that are not stored yet, because the previous append is not complete.
    unstored: Vec<TaskRecord>,
    /// True if the loop should read the records of other processes.
    must_look: bool,
}

/// Events of the executor or the canceler.
struct EventQueue {
    queue: mpsc::Receiver<TaskEvent>,
    /// True after all events were read and no writer can add more.
    is_done: bool,
}

enum RunEvent {
    Stopped,
    TimeIsUp,
    /// Another process has written to the log of the task, or may have written.
    Look,
    Accounted(Arc<Receipt>),
    CancelerReturned,
    ExecutorEnded(Result<ExecutorResult, WorkLost>),
    Processed(Vec<LifecycleEvent>),
    ExecutorWrote(Option<TaskEvent>),
    CancelerWrote(Option<TaskEvent>),
    Inactive,
}

/// Operation on the stream of the task.
enum StreamStep {
    Look,
    /// Finishes the previous append.
    Settle,
    Append(Vec<TaskRecord>),
}

impl EventQueue {
    fn new(queue: mpsc::Receiver<TaskEvent>) -> Self {
        Self {
            queue,
            is_done: false,
        }
    }
}

impl ExecutionEngine {
    /// Runs the executor until the end of the execution is stored and all of its work has ended. `slot` is `None` if a
    /// stop came first, or if the execution needs no slot.
    pub(super) async fn run_executor(
        &mut self,
        parts: &TaskParts,
        slot: Option<SlotGuard>,
        is_resumed: bool,
        guard: &EngineGuard,
    ) {
        let Some(task) = self.stream.task().map(Arc::clone) else {
            return;
        };
        let queue_len_max = self.host.options().event_queue_len_max;
        let (writer, executor_events) = EventWriter::new(queue_len_max);
        let (_, canceler_events) = EventWriter::new(queue_len_max);
        if let Some(cause) = task.stop_requested.clone() {
            // Another process requested the stop before this process took the task over.
            drop(self.execution.stop(cause));
        }
        let started = self.start_executor(parts, task, writer, is_resumed);
        let Some(StartedExecutor {
            work,
            executor,
            panic_error,
        }) = started
        else {
            drop(slot);
            let parts = CancelParts::from(parts.clone());
            return self.end_before_start(&parts, guard).await;
        };
        if let Some(observer) = &mut self.observer {
            observer.started();
        }
        let mut run = RunLoop {
            lifecycle: Lifecycle::new(Arc::clone(&self.execution.decision)),
            engine: self,
            parts,
            guard,
            executor_events: EventQueue::new(executor_events),
            canceler_events: EventQueue::new(canceler_events),
            work_scope: work.0.clone(),
            executor: Some(executor),
            executor_end: None,
            panic_error,
            processing: None,
            is_stopped: false,
            account: None,
            receipt: None,
            canceling: None,
            end_by: Instant::now(),
            inactive_at: None,
            unstored: Vec::new(),
            must_look: false,
        };
        run.reset_inactivity();
        let end = run.drive().await;
        let (events, executor) = (std::mem::take(&mut run.unstored), run.executor.take());
        drop(run);
        self.is_executor_left = executor.is_some();
        let execution = Arc::clone(&self.execution);
        let leftover = async move {
            end_leftover(&work.0, executor, &execution).await;
            drop(slot);
        };
        tokio::join!(self.end(events, end), leftover);
    }
}

impl RunLoop<'_> {
    /// Runs the loop until the end of the execution is decided. Returns the record of the end. Earlier records that are
    /// not stored yet are in `unstored`.
    async fn drive(&mut self) -> TaskRecord {
        // One append stores all waiting events. If the executor writes three events in quick succession, it therefore
        // waits only once. A processor checks each event and needs the task after the previous event, so with a
        // processor each event has a separate append.
        let batch_len_max = match self.parts.processor {
            Some(_) => 0,
            None => self.engine.host.options().event_queue_len_max,
        };
        loop {
            let event = self.next_event().await;
            let mut end = self.handle(event);
            let mut batch_len = 0;
            while end.is_none()
                && batch_len < batch_len_max
                && let Ok(event) = self.executor_events.queue.try_recv()
            {
                end = self.handle(RunEvent::ExecutorWrote(Some(event)));
                batch_len += 1;
            }
            if let Some(end) = end.or_else(|| self.end_if_complete()) {
                return end;
            }
            let has_looked = self.must_look;
            let stored = self.store().await;
            self.apply_external_stop();
            if has_looked {
                self.engine.execution.looks.send_modify(|count| *count += 1);
            }
            if let Err(error) = stored
                && !self.engine.stream.is_fenced()
                && !matches!(error, TaskStoreError::NoAnswer)
            {
                let reason = format!("an event was not stored: {error}");
                if let Some(end) = self.decide(LifecycleEvent::Failed(reason.into())) {
                    return end;
                }
            }
        }
    }

    async fn next_event(&mut self) -> RunEvent {
        let (is_stopped, is_free) = (self.is_stopped, self.processing.is_none());
        let has_receipt = self.receipt.is_some();
        let inactive_at = self.inactive_at.unwrap_or_else(Instant::now);
        let (executor_events, canceler_events) =
            (&mut self.executor_events, &mut self.canceler_events);
        // The queues come last, so that a writer without pauses does not delay the other events.
        tokio::select! {
            biased;
            () = self.engine.execution.scope.stopped(), if !is_stopped => RunEvent::Stopped,
            () = sleep_until(self.end_by), if has_receipt => RunEvent::TimeIsUp,
            () = self.engine.execution.look.notified(), if !is_stopped => RunEvent::Look,
            receipt = pending_or(&mut self.account) => RunEvent::Accounted(receipt),
            () = pending_or(&mut self.canceling) => RunEvent::CancelerReturned,
            ended = pending_or(&mut self.executor) => RunEvent::ExecutorEnded(ended),
            events = pending_or(&mut self.processing) => RunEvent::Processed(events),
            event = executor_events.queue.recv(), if is_free && !executor_events.is_done => {
                RunEvent::ExecutorWrote(event)
            }
            event = canceler_events.queue.recv(), if is_stopped && is_free && !canceler_events.is_done => {
                RunEvent::CancelerWrote(event)
            }
            () = sleep_until(inactive_at), if !is_stopped && is_free && self.inactive_at.is_some() => {
                RunEvent::Inactive
            }
        }
    }

    /// Handles one event. Returns the record of the end if the event decides the end of the execution.
    fn handle(&mut self, event: RunEvent) -> Option<TaskRecord> {
        match event {
            RunEvent::Stopped => self.stopped(),
            RunEvent::TimeIsUp => return self.end_with_receipt(),
            RunEvent::Look => self.must_look = true,
            RunEvent::Accounted(receipt) => {
                self.account = None;
                self.receipt = Some(receipt);
                self.executor_events.queue.close();
            }
            RunEvent::CancelerReturned => {
                self.canceling = None;
                self.canceler_events.queue.close();
            }
            RunEvent::ExecutorEnded(ended) => {
                self.executor = None;
                self.executor_ended(ended);
            }
            RunEvent::Processed(events) => {
                self.processing = None;
                self.reset_inactivity();
                return events.into_iter().find_map(|event| self.decide(event));
            }
            RunEvent::ExecutorWrote(Some(event)) | RunEvent::CancelerWrote(Some(event)) => {
                self.reset_inactivity();
                self.processing = self.process(&event);
                if self.processing.is_none() {
                    return self.decide(LifecycleEvent::Wrote(event));
                }
            }
            RunEvent::ExecutorWrote(None) => self.executor_events.is_done = true,
            RunEvent::CancelerWrote(None) => self.canceler_events.is_done = true,
            RunEvent::Inactive => {
                let max = self.engine.host.options().inactivity_max;
                let detail = format!("no event for {:?}", max.unwrap_or_default());
                let cause = Cause::new(CauseKind::Inactivity).detail(detail);
                // The loop receives this stop as an event, and then waits for the receipt.
                drop(self.engine.execution.stop(cause));
            }
        }
        None
    }

    /// Returns the record of the end if all earlier events were handled.
    fn end_if_complete(&mut self) -> Option<TaskRecord> {
        if !self.executor_events.is_done || self.processing.is_some() {
            return None;
        }
        if let Some(end) = self.executor_end.take() {
            self.processing = self.process_error(&end);
            if self.processing.is_some() {
                return None;
            }
            if let Some(end) = self.decide(LifecycleEvent::Silent(end)) {
                return Some(end);
            }
        }
        if !self.is_stopped {
            // The executor has dropped its writer but still runs. The loop waits for its return value.
            self.executor.is_none().then_some(())?;
            return self.decide(LifecycleEvent::Silent(ExecutorEnd::Returned));
        }
        let is_quiet = self.receipt.as_ref()?.quiet();
        // If no work runs any more, the executor has ended, and its value arrives immediately. The loop waits for this
        // value.
        let is_complete = self.canceler_events.is_done && !(is_quiet && self.executor.is_some());
        is_complete.then(|| self.end_with_receipt()).flatten()
    }

    fn end_with_receipt(&mut self) -> Option<TaskRecord> {
        let receipt = self.receipt.take()?;
        let receipt = self.engine.execution.part_receipts.join(receipt);
        self.decide(LifecycleEvent::Accounted(receipt))
    }

    fn decide(&mut self, event: LifecycleEvent) -> Option<TaskRecord> {
        let event = match event {
            // The parser could not read such a record again.
            LifecycleEvent::Wrote(event) if is_too_deep(&event) => LifecycleEvent::Failed(
                format!("an event has JSON of more than {NESTING_MAX} levels").into(),
            ),
            event => event,
        };
        let failure = match &event {
            LifecycleEvent::Failed(reason) => Some(Arc::clone(reason)),
            _ => None,
        };
        match self.lifecycle.handle(event, self.engine.now()) {
            LifecycleEffect::None => None,
            LifecycleEffect::Append(record) => {
                self.unstored.push(record);
                None
            }
            LifecycleEffect::End(record) => {
                if let Some(reason) = failure {
                    // The result of the executor has no more effect. The executor ends in parallel to the write.
                    let cause = Cause::new(CauseKind::Failure).detail(reason.to_string());
                    let request = StopRequest::new(Extent::Subtree, cause);
                    drop(self.work_scope.stop(request));
                }
                Some(record)
            }
        }
    }

    /// Stops the execution if another process has requested the stop or has taken the execution over.
    fn apply_external_stop(&mut self) {
        let stream = &self.engine.stream;
        let requested = stream.task().and_then(|task| task.stop_requested.clone());
        let cause = match requested {
            _ if self.is_stopped => return,
            _ if stream.is_fenced() => {
                Cause::new(CauseKind::LeaseLost).detail("another process runs the task")
            }
            Some(cause) => cause,
            None => return,
        };
        // The loop receives this stop as an event, and then waits for the receipt.
        drop(self.engine.execution.stop(cause));
    }

    /// Appends the unstored records. A stop interrupts the append, and so does the receipt of the stop. The outcome of
    /// an interrupted append is determined by the next append, or at the latest by the write of the end.
    async fn store(&mut self) -> Result<(), TaskStoreError> {
        if std::mem::take(&mut self.must_look) {
            // If the read fails, the task does not fail: the process that asked for the read will ask again.
            let _asked_again = self.unless_interrupted(StreamStep::Look).await;
        }
        if self.unstored.is_empty() {
            return Ok(());
        }
        if !self.unless_interrupted(StreamStep::Settle).await? {
            return Ok(());
        }
        let records = std::mem::take(&mut self.unstored);
        if self.unless_interrupted(StreamStep::Append(records)).await? {
            // Update the state in lists.
            self.engine.host.note(&self.engine.stream);
        }
        Ok(())
    }

    /// Executes the step. Returns false if the step is interrupted.
    async fn unless_interrupted(&mut self, step: StreamStep) -> Result<bool, TaskStoreError> {
        let ExecutionEngine {
            stream, execution, ..
        } = &mut *self.engine;
        let write = async {
            match step {
                StreamStep::Look => stream.look().await,
                StreamStep::Settle => stream.settle().await,
                StreamStep::Append(records) => stream.append(records).await,
            }
        };
        let (is_stopped, account) = (self.is_stopped, &mut self.account);
        tokio::select! {
            biased;
            // Polled first: if the append were never polled, its records would be lost.
            written = write => written.map(|()| true),
            () = execution.scope.stopped(), if !is_stopped => Ok(false),
            receipt = pending_or(account), if is_stopped && account.is_some() => {
                self.account = Some(std::future::ready(receipt).boxed());
                Ok(false)
            }
            () = std::future::ready(()), if is_stopped && self.receipt.is_some() => Ok(false),
        }
    }

    /// Calls the processor with an event. `None` if there is no processor.
    fn process(&self, event: &TaskEvent) -> Option<BoxFuture<'static, Vec<LifecycleEvent>>> {
        let processor = self.parts.processor.as_ref()?;
        let task = Arc::clone(self.engine.stream.task()?);
        let max = self.engine.host.options().user_code_max;
        Some(self.engine.process(processor, task, event.clone(), max))
    }

    /// Calls the processor with an error of the executor.
    fn process_error(&self, end: &ExecutorEnd) -> Option<BoxFuture<'static, Vec<LifecycleEvent>>> {
        let ExecutorEnd::Failed(error, taken_over) = end else {
            return None;
        };
        let processor = Arc::clone(self.parts.processor.as_ref()?);
        let task = Arc::clone(self.engine.stream.task()?);
        let (error, taken_over) = (error.clone(), *taken_over);
        let processed = error.clone();
        let decision = self
            .engine
            .user_code("processor", move |_scope| async move {
                processor.process_error(processed, task).await
            });
        let events = async move {
            let silent = |error| LifecycleEvent::Silent(ExecutorEnd::Failed(error, taken_over));
            match decision.await {
                Ok(Ok(event)) if event.ends_execution() => vec![LifecycleEvent::Wrote(event)],
                Ok(Ok(event)) => vec![LifecycleEvent::Wrote(event), silent(error)],
                Ok(Err(other)) => vec![silent(other)],
                Err(_no_decision) => vec![silent(error)],
            }
        };
        Some(events.boxed())
    }

    fn executor_ended(&mut self, ended: Result<ExecutorResult, WorkLost>) {
        let end = match ended {
            Ok(Ok(ExecutorReturn::ContinuesElsewhere)) => return,
            Ok(Ok(ExecutorReturn::Finished)) => ExecutorEnd::Returned,
            Ok(Err(error)) => self.failed_with(error),
            Err(WorkLost::Panicked) => match self.panic_error.get() {
                Some(error) => self.failed_with(error.clone()),
                None => ExecutorEnd::Panicked,
            },
            Err(WorkLost::Dropped | WorkLost::NoThread) => ExecutorEnd::Dropped,
        };
        // Events that were written before the executor ended are still read. Other holders of the writer can write no
        // more events, unless a stop has dropped the executor: then the rest of its work may write until the receipt.
        if !(self.is_stopped && end == ExecutorEnd::Dropped) {
            self.executor_events.queue.close();
        }
        self.executor_end = Some(end);
    }

    fn failed_with(&self, error: ExecutorError) -> ExecutorEnd {
        let taken_over = self.engine.taken_over.as_ref();
        ExecutorEnd::Failed(error, taken_over.map(|task| task.epoch))
    }

    fn stopped(&mut self) {
        self.is_stopped = true;
        let scope = &self.engine.execution.scope;
        self.end_by = instant_after(Instant::now(), scope.grace() + FORCE_MAX);
        let (Some(cause), Some(account)) =
            (scope.cause(), scope.account(Extent::Subtree, Vec::new()))
        else {
            return;
        };
        self.guard.acknowledge();
        self.engine.observe_stop();
        self.account = Some(async move { account.receipt().await }.boxed());
        let end = self.decide(LifecycleEvent::Stopped(cause.clone()));
        debug_assert!(end.is_none(), "a stop ends with its receipt");
        self.call_canceler(cause);
    }

    /// Calls the canceler. The time limit is the grace.
    fn call_canceler(&mut self, cause: Cause) {
        let canceler = self.parts.canceler.as_ref();
        // If this worker has lost its lease or hands the task over, another worker continues the task, so the canceler
        // must not end it.
        let execution = &self.engine.execution;
        let continues_elsewhere = execution.has_lost_lease() || execution.is_handed_over();
        let canceler = canceler.filter(|_| !continues_elsewhere);
        let (Some(canceler), Some(task)) = (canceler, self.engine.stream.task()) else {
            self.canceler_events.is_done = true;
            return;
        };
        let (canceler, task) = (Arc::clone(canceler), Arc::clone(task));
        let (events, queue) = EventWriter::new(self.engine.host.options().event_queue_len_max);
        self.canceler_events = EventQueue::new(queue);
        let execution = &self.engine.execution;
        let (grace, receipts) = (execution.scope.grace(), execution.part_receipts.clone());
        let asked = self
            .engine
            .user_code_within(grace, "canceler", move |scope| async move {
                let cx = CancelCx {
                    task,
                    cause,
                    scope,
                    events,
                    receipts,
                    is_interrupted: false,
                };
                canceler.cancel(cx).await
            });
        let call = async move {
            match asked.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a canceler refused; the task is stopped"),
                Err(error) => tracing::warn!(%error, "a canceler"),
            }
        };
        self.canceling = Some(call.boxed());
    }

    fn reset_inactivity(&mut self) {
        let max = self.engine.host.options().inactivity_max;
        self.inactive_at = max.map(|max| instant_after(Instant::now(), max));
    }
}

/// Returns the output of the future. Waits forever if there is no future.
async fn pending_or<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
