//! Flags of the traces, for all commands that run agents.

use clap::Args;

/// Environment variable with the file for the traces of a program that uses a Copilot SDK.
pub(crate) const TRACE_FILE: &str = "COPILOT_OTEL_FILE_EXPORTER_PATH";

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TraceArgs {
    /// URL of an OpenTelemetry collector for traces over HTTP (`http://127.0.0.1:4318`): turns, model calls and tool
    /// calls, without their texts
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", help_heading = "Traces", hide = !cfg!(feature = "otlp"))]
    otlp: Option<String>,
}

impl TraceArgs {
    /// URL of the collector; `None` if traces are disabled.
    pub(crate) fn collector(&self) -> Option<&str> {
        self.otlp
            .as_deref()
            .filter(|collector| !collector.is_empty())
    }
}
