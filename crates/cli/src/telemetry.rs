//! Traces over OTLP, for all commands that run agents.

use std::path::PathBuf;
use std::time::Duration;

use allstop_otel::{LostSpans, TraceFile};
use allstop_terminal::{OutputPriority, OutputQueue, Styled};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

pub(crate) use allstop_otel::{ExecutionSpan, TraceExporter};

use crate::args::TraceArgs;
use crate::error::CliError;
use crate::host::ProcessHost;

/// Maximum wait until the last spans are sent at the end of the process. A collector on the same network answers in
/// milliseconds, and a user does not notice half a second.
const LAST_SPANS_MAX: Duration = Duration::from_millis(500);

/// Creates the exporter that the flags and the environment select, without sending anything. A `file` replaces the
/// collector. `stderr` gets the warning about
/// lost spans.
///
/// # Errors
/// If the URL of the collector is invalid, or the file cannot be opened.
pub(crate) fn open(
    args: &TraceArgs,
    file: Option<PathBuf>,
    stderr: OutputQueue,
) -> Result<Option<TraceExporter>, CliError> {
    if is_true("OTEL_SDK_DISABLED") {
        return Ok(None);
    }
    let warn = move |lost: &LostSpans| {
        let warning = lost.to_string();
        stderr.sentences(Styled::text(&warning), OutputPriority::Required);
    };
    if let Some(path) = file {
        let file = TraceFile {
            path,
            source: ProcessHost::text_variable("COPILOT_OTEL_SOURCE_NAME")
                .unwrap_or_else(|| "allstop".to_owned()),
            keeps_texts: is_true("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"),
        };
        let exporter = TraceExporter::to_file(file, warn);
        let hint = "use a path in a folder that exists";
        return exporter
            .map(Some)
            .map_err(|error| CliError::usage(error.to_string()).hint(hint));
    }
    let Some(collector) = args.collector() else {
        return Ok(None);
    };
    let exporter = TraceExporter::new(collector, warn);
    match exporter {
        Ok(exporter) => Ok(Some(exporter)),
        Err(error) => {
            Err(CliError::usage(error.to_string()).hint("use a URL such as http://127.0.0.1:4318"))
        }
    }
}

/// True if the environment variable is `true`.
fn is_true(name: &str) -> bool {
    let value = ProcessHost::text_variable(name);
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Layer of an exporter that may be absent.
pub(crate) fn layer<S>(exporter: Option<&TraceExporter>) -> Option<impl Layer<S> + use<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    exporter.map(TraceExporter::layer)
}

/// Sends the remaining spans, for at most `max`, and warns about lost spans. Blocks the thread.
pub(crate) fn close(exporter: &TraceExporter, max: Duration) {
    exporter.close(max.min(LAST_SPANS_MAX));
}
