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

    /// True if spans get texts of the conversation: the messages and the answer of a model call, and the arguments and the
    /// result of a tool call. Without this choice, no span contains such a text.
    fn keeps_texts(&self) -> bool {
        false
    }

    /// Adds a text of the conversation to a span. Called only if [`SpanLinks::keeps_texts`] returns true. The text is no field
    /// of `tracing`, so that other subscribers do not get it.
    fn add_text(&self, _span: &Span, _attribute: &'static str, _text: String) {}

    /// True if only turns, model calls and tool calls have spans. The calls are then directly below the span of their turn.
    fn only_calls(&self) -> bool {
        false
    }
}
