//! A stop of a task at rest: only its canceler runs.

use std::sync::Arc;

use allstop_core::Cause;
use allstop_scope::EngineGuard;

use super::lifecycle::{Lifecycle, LifecycleEffect, LifecycleEvent};
use super::{ExecutionEngine, ExecutionResult};
use crate::event_writer::EventWriter;
use crate::executor::{CancelCx, Canceler, ExecutorError, TaskParts};
use crate::model::{Task, TaskEvent};

/// Events that a canceler may write: a few artifacts and an end, kept until it has returned.
const CANCELER_EVENTS_MAX: usize = 1_000;

impl ExecutionEngine {
    /// Ends a task at rest, or leaves it as it is if its canceler refuses.
    pub(super) async fn cancel_at_rest(
        &mut self,
        cause: Cause,
        guard: &EngineGuard,
    ) -> Option<TaskParts> {
        let task = Arc::clone(self.stream.task()?);
        let receipt = self.account(guard).await?;
        let parts = match self.create_parts(&task).await {
            Ok(parts) => parts,
            Err(error) => {
                self.execution.finish(ExecutionResult::Refused(error));
                return None;
            }
        };
        let events = match &parts.canceler {
            Some(canceler) => self.ask_canceler(canceler, task, cause.clone()).await,
            None => Ok(Vec::new()),
        };
        match events {
            Ok(events) => {
                let mut lifecycle = Lifecycle::new(Arc::clone(&self.execution.decision));
                let happened = std::iter::once(LifecycleEvent::Stopped(cause))
                    .chain(events.into_iter().map(LifecycleEvent::Wrote))
                    .chain(std::iter::once(LifecycleEvent::Accounted(receipt)));
                let mut records = vec![self.started()];
                for event in happened {
                    match lifecycle.handle(event, self.now()) {
                        LifecycleEffect::None => {}
                        LifecycleEffect::Append(record) | LifecycleEffect::End(record) => {
                            records.push(record);
                        }
                    }
                }
                self.end_with(records).await;
            }
            Err(error) => self.execution.finish(ExecutionResult::Refused(error)),
        }
        Some(parts)
    }

    /// Calls the canceler, and returns the events that it wrote.
    async fn ask_canceler(
        &self,
        canceler: &Arc<dyn Canceler>,
        task: Arc<Task>,
        cause: Cause,
    ) -> Result<Vec<TaskEvent>, ExecutorError> {
        let (writer, mut queue) = EventWriter::new(self.manager.options.event_queue_len_max);
        let canceler = Arc::clone(canceler);
        let asked = self.user_code("canceler", move |scope| async move {
            let cx = CancelCx {
                task,
                cause,
                scope,
                events: writer,
            };
            canceler.cancel(cx).await
        });
        let mut asked = std::pin::pin!(asked);
        let mut events = Vec::new();
        let answer = loop {
            tokio::select! {
                Some(event) = queue.recv(), if events.len() < CANCELER_EVENTS_MAX => events.push(event),
                answer = &mut asked => break answer,
            }
        };
        while let Ok(event) = queue.try_recv() {
            events.push(event);
        }
        match answer {
            Ok(answer) => answer.map(|()| events),
            Err(error) => Err(ExecutorError::new(format!("the canceler {error}"))),
        }
    }
}
