//! Log for debugging on standard error, `ALLSTOP_LOG=debug`, and the traces. Both are layers of one subscriber.

use tracing::Subscriber;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, registry};

use allstop_terminal::OutputQueue;

use crate::host;
use crate::telemetry::{self, TraceExporter};

/// Environment variable with the filter: `info`, `debug`, `allstop_agent=trace` …
const VARIABLE: &str = "ALLSTOP_LOG";

/// Filter that switches off libraries whose logs contain whole requests and errors, possibly with API keys or tokens.
const NEVER: &str = "hyper=off,hyper_util=off,reqwest=off,rmcp::transport::auth=off";

/// Starts logging to this output queue if [`VARIABLE`] is set, and the traces if there is an exporter. Without both,
/// spans and log lines cost nothing.
pub(crate) fn start(queue: &OutputQueue, traces: Option<&TraceExporter>) {
    let log = log(queue);
    if log.is_none() && traces.is_none() {
        return;
    }
    registry().with(telemetry::layer(traces)).with(log).init();
}

fn log<S>(queue: &OutputQueue) -> Option<impl Layer<S> + use<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let wanted = host::variable(VARIABLE)?;
    let filter = EnvFilter::new(format!("{},{NEVER}", wanted.to_string_lossy()));
    let queue = queue.clone();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || queue.writer());
    Some(log.with_filter(filter))
}
