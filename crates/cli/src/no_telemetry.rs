//! Replacement for the module `telemetry` in a build without traces.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::SpanLinks;
use allstop_core::TraceContext;
use allstop_task::{ExecutionObserver, Task};
use allstop_terminal::OutputQueue;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Identity;

use crate::args::{TRACE_FILE, TraceArgs};
use crate::error::CliError;

pub(crate) use self::{NoExecutionSpan as ExecutionSpan, NoTraceExporter as TraceExporter};

/// Exporter that cannot exist in this build.
#[derive(Debug, Clone)]
pub(crate) enum NoTraceExporter {}

impl NoTraceExporter {
    pub(crate) fn links(&self) -> Arc<dyn SpanLinks> {
        match *self {}
    }

    #[cfg(feature = "copilot")]
    pub(crate) fn flush_file(&self) {
        match *self {}
    }

    pub(crate) fn execution(&self, _task: &Task, _caller: Option<&TraceContext>) -> ExecutionSpan {
        match *self {}
    }
}

/// Refuses the flag that enables traces.
pub(crate) fn open(
    args: &TraceArgs,
    file: Option<PathBuf>,
    _stderr: OutputQueue,
) -> Result<Option<TraceExporter>, CliError> {
    match (args.collector(), file) {
        (Some(_), _) => Err(CliError::not_built("--otlp", "otlp")),
        (None, Some(_)) => Err(CliError::not_built(TRACE_FILE, "otlp")),
        (None, None) => Ok(None),
    }
}

/// Ends an exporter that cannot exist.
pub(crate) fn close(exporter: &TraceExporter, _max: Duration) {
    match *exporter {}
}

/// Layer of an exporter that cannot exist.
pub(crate) fn layer<S: Subscriber>(_exporter: Option<&TraceExporter>) -> Option<impl Layer<S>> {
    None::<Identity>
}

/// Span that cannot exist in this build.
#[derive(Debug)]
pub(crate) enum NoExecutionSpan {}

impl ExecutionObserver for NoExecutionSpan {}
