//! Log for debugging on standard error: `ALLSTOP_LOG=debug`.

use tracing_subscriber::EnvFilter;

use allstop_terminal::OutputQueue;

use crate::host;

/// Environment variable with the filter: `info`, `debug`, `allstop_agent=trace` …
const VARIABLE: &str = "ALLSTOP_LOG";

/// Filter that switches off libraries whose logs contain whole requests and errors, possibly with API keys.
const NEVER: &str = "hyper=off,hyper_util=off,reqwest=off";

/// Starts logging to this output queue if [`VARIABLE`] is set.
pub(crate) fn start(queue: &OutputQueue) {
    let Some(wanted) = host::variable(VARIABLE) else {
        return;
    };
    let filter = EnvFilter::new(format!("{},{NEVER}", wanted.to_string_lossy()));
    let queue = queue.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
        .with_writer(move || queue.writer())
        .init();
}
