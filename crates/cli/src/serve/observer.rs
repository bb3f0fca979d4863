//! Metrics and traces of each execution (run of a task).

use allstop_core::{Cause, Receipt, TraceContext};
use allstop_task::{ExecutionObserver, Task, TaskObserver, TaskState};

use super::metrics::{ExecutionMetrics, TaskMetrics};
use crate::telemetry::{ExecutionSpan, TraceExporter};

/// Observes the executions of the server.
#[derive(Debug, Clone)]
pub(super) struct ServerObserver {
    pub(super) metrics: TaskMetrics,
    /// `None` if traces are disabled.
    pub(super) traces: Option<TraceExporter>,
}

impl TaskObserver for ServerObserver {
    fn message_accepted(&self) {
        self.metrics.message_accepted();
    }

    fn accepted(&self, task: &Task, trace: Option<&TraceContext>) -> Box<dyn ExecutionObserver> {
        Box::new(ServedExecution {
            metrics: self.metrics.accepted(),
            span: self
                .traces
                .as_ref()
                .map(|traces| traces.execution(task, trace)),
        })
    }

    fn left_work_stopped(&self, receipt: &Receipt) {
        self.metrics.left_work_stopped(receipt);
    }

    fn message_ended(&self, state: TaskState) {
        self.metrics.message_ended(state);
    }
}

struct ServedExecution {
    metrics: ExecutionMetrics,
    span: Option<ExecutionSpan>,
}

impl ExecutionObserver for ServedExecution {
    fn trace(&self) -> Option<TraceContext> {
        self.span.as_ref()?.trace()
    }

    fn started(&mut self) {
        self.metrics.started();
        if let Some(span) = &mut self.span {
            span.started();
        }
    }

    fn stopping(&mut self, cause: &Cause) {
        self.metrics.stopping(cause);
        if let Some(span) = &mut self.span {
            span.stopping(cause);
        }
    }

    fn kept_waiting(&mut self) {
        self.metrics.kept_waiting();
    }

    fn handed_over(&mut self) {
        self.metrics.handed_over();
    }

    fn finished(&mut self) {
        self.metrics.finished();
    }

    fn ended(&mut self, task: &Task) {
        self.metrics.ended(task);
        if let Some(span) = &mut self.span {
            span.ended(task);
        }
    }
}
