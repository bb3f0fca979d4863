//! Replacement for the module `traces` in a build without traces.

use std::time::Duration;

use allstop_task::{ExecutionObserver, Task};

use crate::error::CliError;

pub(super) use self::{NoExecutionSpan as ExecutionSpan, NoTraceExporter as TraceExporter};

/// Exporter that cannot exist in this build.
#[derive(Debug, Clone)]
pub(super) enum NoTraceExporter {}

impl NoTraceExporter {
    /// Refuses the flag that enables traces.
    pub(super) fn new(_collector: &str) -> Result<Self, CliError> {
        Err(CliError::not_built("--otlp", "otlp"))
    }

    pub(super) fn accepted(&self, _task: &Task, _trace: Option<&str>) -> ExecutionSpan {
        match *self {}
    }

    pub(super) fn close(&self, _max: Duration) {
        match *self {}
    }
}

/// Span that cannot exist in this build.
#[derive(Debug)]
pub(super) enum NoExecutionSpan {}

impl ExecutionObserver for NoExecutionSpan {}
