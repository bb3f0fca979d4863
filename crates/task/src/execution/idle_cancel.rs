//! A stop of a task at rest. No executor runs, so only the canceler is called: the part of the embedding program that
//! can end a task.

use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, Receipt};
use allstop_scope::{EngineGuard, FORCE_MAX};
use tokio::time::Instant;

use super::lifecycle::{Lifecycle, LifecycleEffect, LifecycleEvent};
use super::{ExecutionEngine, ExecutionResult};
use crate::event_writer::EventWriter;
use crate::executor::{CancelCx, CancelParts, Canceler, ExecutorError};
use crate::model::{Task, TaskEvent, TaskRecord};

/// Maximum number of events of a canceler, which usually writes a few artifacts and an end. The events are kept in
/// memory until the canceler returns.
const CANCELER_EVENTS_MAX: usize = 1_000;

/// Maximum time of all calls of the processor for the events of a canceler. A stop of a running task has the same time
/// for the events that are left after the grace.
const PROCESSING_MAX: Duration = FORCE_MAX;

impl ExecutionEngine {
    /// Ends a task at rest. If the canceler refuses, the task does not change.
    pub(super) async fn cancel_at_rest(
        &mut self,
        cause: Cause,
        guard: &EngineGuard,
    ) -> Option<CancelParts> {
        let begun = Instant::now();
        let receipt = self.account(guard).await?;
        if let Err(error) = self.load().await {
            self.execution
                .finish(ExecutionResult::NotStarted(error.into()));
            return None;
        }
        let task = Arc::clone(self.stream.task()?);
        self.observe();
        self.observe_stop();
        let parts = match self.create_cancel_parts(&task, guard).await {
            Ok(parts) => parts,
            Err(error) => {
                self.refuse_stop(error).await;
                return None;
            }
        };
        // A turn of the task may still wait at its worker, with processes and background work. This process sees none of
        // them.
        let own = self.execution.worker();
        let is_lost = self.host.may_have_work_elsewhere(&task, own);
        self.taken_over = is_lost.then(|| Arc::clone(&task));
        self.add_lost_worker();
        match self.canceler_events(&parts, task, &cause, begun).await {
            Ok(events) => self.end_stopped(cause, &parts, events, receipt).await,
            Err(error) => self.refuse_stop(error).await,
        }
        Some(parts)
    }

    /// Reports the refusal of the canceler; the state of the task does not change. If the log contains the stop
    /// request, the refusal is also appended to the log.
    async fn refuse_stop(&mut self, error: ExecutorError) {
        if self
            .stream
            .task()
            .is_some_and(|task| task.stop_requested.is_some())
        {
            let refused = TaskRecord::StopRefused {
                reason: Arc::clone(error.message()),
                at: self.now(),
            };
            if let Err(error) = self.stream.append(vec![refused]).await {
                return self.execution.finish(ExecutionResult::NotConfirmed(error));
            }
        }
        self.execution.finish(ExecutionResult::Refused(error));
    }

    /// Ends an execution that was stopped before its executor started. If the task was at rest before, work of an
    /// earlier execution may still wait, and the canceler must end this work. After a crash, the canceler names this work. The execution ends even if the canceler
    /// refuses.
    pub(super) async fn end_before_start(&mut self, parts: &CancelParts, guard: &EngineGuard) {
        let begun = Instant::now();
        let reason = if self.add_lost_worker() {
            "the task was stopped after the loss of its worker"
        } else if self.is_interrupted {
            "the task was stopped after a crash had interrupted it"
        } else {
            "the task was stopped before its start"
        };
        let is_interrupted = self.is_interrupted;
        let rested = self
            .stream
            .task()
            .filter(|task| is_interrupted || has_rested(task));
        let (task, cause) = (rested.map(Arc::clone), self.execution.scope.cause());
        let (Some(task), Some(cause)) = (task, cause) else {
            let event = LifecycleEvent::Failed(reason.into());
            return self.end_without_executor(event, guard).await;
        };
        let Some(receipt) = self.account(guard).await else {
            return;
        };
        let events = if self.execution.has_lost_lease() {
            Ok(Vec::new())
        } else {
            self.canceler_events(parts, task, &cause, begun).await
        };
        let events = events.unwrap_or_else(|error| {
            tracing::warn!(%error, "a canceler refused; the task is stopped");
            Vec::new()
        });
        if self.is_interrupted && events.is_empty() {
            let event = LifecycleEvent::Failed(reason.into());
            return self.end_without_executor(event, guard).await;
        }
        self.observe_stop();
        self.end_stopped(cause, parts, events, receipt).await;
    }

    /// Ends the task with the canceler's events and the receipt. The processor checks each event, as in a running
    /// execution.
    async fn end_stopped(
        &mut self,
        cause: Cause,
        parts: &CancelParts,
        events: Vec<TaskEvent>,
        receipt: Arc<Receipt>,
    ) {
        let mut lifecycle = Lifecycle::new(Arc::clone(&self.execution.decision));
        lifecycle.handle(LifecycleEvent::Stopped(cause), self.now());
        // The records are stored together with the end. Until then, only this copy of the task contains them.
        let mut task = self.stream.task().cloned();
        let started = (!self.is_executing()).then(|| self.started());
        let _is_legal = started.is_none_or(|started| Task::apply(&mut task, &started).is_ok());
        let mut records = Vec::new();
        let until = Instant::now() + PROCESSING_MAX;
        for event in events {
            let happened = match (&parts.processor, &task) {
                (Some(processor), Some(task)) => {
                    let left = until.saturating_duration_since(Instant::now());
                    self.process(processor, Arc::clone(task), event, left).await
                }
                _ => vec![LifecycleEvent::Wrote(event)],
            };
            for event in happened {
                if let LifecycleEffect::Append(record) = lifecycle.handle(event, self.now()) {
                    // The store refuses an illegal record, and the end of the task then names the error.
                    let _is_legal = Task::apply(&mut task, &record);
                    records.push(record);
                }
            }
        }
        let receipt = self.execution.part_receipts.join(receipt);
        let accounted = LifecycleEvent::Accounted(receipt);
        if let LifecycleEffect::End(end) = lifecycle.handle(accounted, self.now()) {
            self.end(records, end).await;
        }
    }

    /// Calls the canceler, if there is one. The time limit is the grace (the time before a stop uses force) plus the
    /// time for force, because the canceler may need both for the work that it stops.
    async fn canceler_events(
        &self,
        parts: &CancelParts,
        task: Arc<Task>,
        cause: &Cause,
        begun: Instant,
    ) -> Result<Vec<TaskEvent>, ExecutorError> {
        let Some(canceler) = &parts.canceler else {
            return Ok(Vec::new());
        };
        let max = self.execution.scope.grace() + FORCE_MAX;
        let max = max.saturating_sub(begun.elapsed());
        self.ask_canceler(canceler, task, cause.clone(), max).await
    }

    /// Calls the canceler, and returns the events that it wrote.
    async fn ask_canceler(
        &self,
        canceler: &Arc<dyn Canceler>,
        task: Arc<Task>,
        cause: Cause,
        max: Duration,
    ) -> Result<Vec<TaskEvent>, ExecutorError> {
        let (writer, mut queue) = EventWriter::new(self.host.options().event_queue_len_max);
        let canceler = Arc::clone(canceler);
        let receipts = self.execution.part_receipts.clone();
        let is_interrupted = self.is_interrupted;
        let mut asked = self.user_code_within(max, "canceler", move |scope| async move {
            let cx = CancelCx {
                task,
                cause,
                scope,
                events: writer,
                receipts,
                is_interrupted,
            };
            canceler.cancel(cx).await
        });
        let mut events = Vec::new();
        let answer = loop {
            tokio::select! {
                Some(event) = queue.recv(), if events.len() < CANCELER_EVENTS_MAX => events.push(event),
                answer = &mut asked => break answer,
            }
        };
        // Other code may still hold a clone of the writer, so no more events are accepted.
        queue.close();
        while let Ok(event) = queue.try_recv() {
            events.push(event);
        }
        match answer {
            Ok(answer) => answer.map(|()| events),
            Err(error) => Err(error.of("canceler")),
        }
    }
}

/// True if an earlier execution of the task has ended.
fn has_rested(task: &Task) -> bool {
    task.epoch > u64::from(task.is_executing)
}
