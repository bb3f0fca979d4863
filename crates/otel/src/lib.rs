//! Traces of agents and tasks over OTLP: turns, steps, model calls, tool calls, hooks and guardrails, with the attributes of
//! the [semantic conventions for generative AI](https://opentelemetry.io/docs/specs/semconv/gen-ai/), and stops with the
//! states of their receipts. No span contains text of prompts, answers, arguments, results or errors, except in a
//! [`TraceFile`] that keeps texts.
//!
//! ```
//! use std::time::Duration;
//!
//! use allstop_agent::{Agent, AgentBuilder};
//! use allstop_otel::{ExporterError, TraceExporter};
//! use tracing_subscriber::layer::SubscriberExt as _;
//! use tracing_subscriber::util::SubscriberInitExt as _;
//!
//! fn traced(agent: AgentBuilder) -> Result<(Agent, TraceExporter), ExporterError> {
//!     let traces = TraceExporter::new("http://127.0.0.1:4318", |lost| eprintln!("{lost}"))?;
//!     tracing_subscriber::registry().with(traces.layer()).init();
//!     Ok((agent.spans(traces.links()).build(), traces))
//! }
//!
//! /// At the end of the program. Blocks the thread.
//! fn end(traces: &TraceExporter) {
//!     traces.close(Duration::from_millis(500));
//! }
//! ```

#![warn(missing_docs)]

mod collector_client;
#[cfg(feature = "tasks")]
mod execution_span;
mod exporter;
mod file_exporter;
mod lost_spans;
mod sent_spans;
mod span_links;

#[cfg(feature = "tasks")]
pub use execution_span::ExecutionSpan;
pub use exporter::{ExporterError, TraceExporter};
pub use file_exporter::TraceFile;
pub use lost_spans::LostSpans;
