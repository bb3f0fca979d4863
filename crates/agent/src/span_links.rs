//! Connection of the agent's spans with a tracer.

use std::fmt;

use allstop_core::TraceContext;
use tracing::Span;

/// Connection between the spans of `tracing` and the spans of a tracer, such as OpenTelemetry. Without this connection,
/// the parent of a turn's span is the current span, and tools get the trace context of the message.
///
/// The methods are called on the engine's threads, so they must not block or panic.
pub trait SpanLinks: Send + Sync + fmt::Debug {
    /// Sets the parent of a span that has just been created.
    fn set_parent(&self, span: &Span, parent: &TraceContext);

    /// Trace context of a span, for work in other processes; `None` if the span is not traced.
    fn trace_of(&self, span: &Span) -> Option<TraceContext>;

    /// Ends a span now. `tracing` ends a span only after the work inside has dropped it, and a tool that cannot be
    /// stopped never drops its span.
    fn end(&self, span: &Span);
}
