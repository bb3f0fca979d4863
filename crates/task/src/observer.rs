//! Observation of executions, for metrics and traces.

use allstop_core::{Cause, Receipt, TraceContext};

use crate::model::{Task, TaskState};

/// Observes the executions of a manager. The engine of an execution (the Tokio task that drives it) calls these methods
/// directly, so the methods must not block or panic.
pub trait TaskObserver: Send + Sync {
    /// Called when this process has accepted a message of a client: the message is durable, and was not accepted before.
    /// In a cluster, another process may run the execution.
    fn message_accepted(&self) {}

    /// Called when an execution is accepted and its records are durable. `trace` is the W3C trace context of the
    /// request.
    fn accepted(&self, task: &Task, trace: Option<&TraceContext>) -> Box<dyn ExecutionObserver>;

    /// Called when this node of a cluster has read the end of an execution whose message it has stored since its start.
    /// `state` is the state of the task after the execution.
    fn message_ended(&self, state: TaskState) {
        let _ = state;
    }

    /// Called when this process has stopped work that still ran after the end of its task. Such a stop has no execution.
    fn left_work_stopped(&self, receipt: &Receipt) {
        let _ = receipt;
    }
}

/// Observes one execution. The engine drops the observer when the engine ends. If the engine has not called
/// [`ExecutionObserver::ended`] or another last method by then, the store has not confirmed the end.
pub trait ExecutionObserver: Send + Sync {
    /// W3C trace context of the work. `None` means that the context of the request is used.
    fn trace(&self) -> Option<TraceContext> {
        None
    }

    /// Called when the executor starts. The execution may have waited for a slot before.
    fn started(&mut self) {}

    /// Called when a stop reaches the execution.
    fn stopping(&mut self, cause: &Cause) {
        let _ = cause;
    }

    /// Called when the manager shuts down and the execution has not started. It has no end: the next manager of the store
    /// starts it.
    fn kept_waiting(&mut self) {}

    /// Called when the worker of the execution shuts down and has handed the task over to another worker.
    fn handed_over(&mut self) {}

    /// Called when the executor has ended or will not start, before the end of the execution is stored. The store may
    /// accept the end much later. Not called if the executor cannot be stopped.
    fn finished(&mut self) {}

    /// Called when the end of the execution is durable: the task has ended, or waits for its client.
    fn ended(&mut self, task: &Task) {
        let _ = task;
    }
}
