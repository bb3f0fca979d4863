//! Observation of executions, for metrics and traces.

use std::sync::Arc;

use allstop_core::Cause;

use crate::model::Task;

/// Observes the executions of a manager. The engines call these methods, so they must neither block nor panic.
pub trait TaskObserver: Send + Sync {
    /// Called when an execution is accepted and its records are durable. `trace` is the W3C trace context
    /// (`traceparent`) of the request.
    fn accepted(&self, task: &Task, trace: Option<&str>) -> Box<dyn ExecutionObserver>;
}

/// Observes one execution. The engine drops the observer at its end. If [`ExecutionObserver::ended`] was not called,
/// the store has not confirmed the end.
pub trait ExecutionObserver: Send + Sync {
    /// W3C trace context of the work; `None` selects the context of the request.
    fn trace(&self) -> Option<Arc<str>> {
        None
    }

    /// Called when the executor starts, after the wait for a slot.
    fn started(&mut self) {}

    /// Called when a stop has reached the execution.
    fn stopping(&mut self, cause: &Cause) {
        let _ = cause;
    }

    /// Called when the end of the execution is durable: the task has ended, or waits for its client.
    fn ended(&mut self, task: &Task) {
        let _ = task;
    }
}
