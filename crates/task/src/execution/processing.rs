//! Calls of the processor: the part of the embedding program that checks each event of an executor or a canceler before
//! the event is stored.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::ExecutionEngine;
use super::lifecycle::LifecycleEvent;
use super::user_code::UserCodeError;
use crate::executor::{Processor, ProcessorDecision};
use crate::model::{Task, TaskEvent};

impl ExecutionEngine {
    /// Calls the processor with an event and the task before this event, within `max`. Returns the events that replace
    /// the event.
    pub(super) fn process(
        &self,
        processor: &Arc<dyn Processor>,
        task: Arc<Task>,
        event: TaskEvent,
        max: Duration,
    ) -> BoxFuture<'static, Vec<LifecycleEvent>> {
        let processor = Arc::clone(processor);
        let decision = self.user_code_within(max, "processor", move |_scope| async move {
            processor.process(event, task).await
        });
        let events = async move {
            match decision.await {
                Ok(ProcessorDecision::Keep(event) | ProcessorDecision::Replace(event)) => {
                    vec![LifecycleEvent::Wrote(event)]
                }
                Ok(ProcessorDecision::End { event, result }) => {
                    let no_end = "the result of the processor does not end the execution";
                    let failed =
                        (!result.ends_execution()).then(|| LifecycleEvent::Failed(no_end.into()));
                    let wrote = event.into_iter().chain([result]).map(LifecycleEvent::Wrote);
                    wrote.chain(failed).collect()
                }
                Ok(ProcessorDecision::Drop) | Err(UserCodeError::Stopped) => Vec::new(),
                Ok(ProcessorDecision::Fail(reason)) => vec![LifecycleEvent::Failed(reason)],
                Err(error) => {
                    let error = error.of("processor");
                    vec![LifecycleEvent::Failed(Arc::clone(error.message()))]
                }
            }
        };
        events.boxed()
    }
}
