//! Connection of the spans of `tracing` with OpenTelemetry, and the trace context of a message.

use std::collections::HashMap;

use allstop_agent::SpanLinks;
use allstop_core::TraceContext;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Links of the layer of `tracing-opentelemetry`.
#[derive(Debug, Default)]
pub(crate) struct OtelLinks {
    /// True if spans contain texts of the conversation.
    pub(crate) keeps_texts: bool,
    /// True if only turns, model calls and tool calls have spans.
    pub(crate) only_calls: bool,
}

impl SpanLinks for OtelLinks {
    fn set_parent(&self, span: &Span, parent: &TraceContext) {
        // Fails only for a span that is not exported.
        drop(span.set_parent(context_of(parent)));
    }

    fn trace_of(&self, span: &Span) -> Option<TraceContext> {
        trace_of(&span.context())
    }

    fn end(&self, span: &Span) {
        span.context().span().end();
    }

    fn keeps_texts(&self) -> bool {
        self.keeps_texts
    }

    fn add_text(&self, span: &Span, attribute: &'static str, text: String) {
        span.set_attribute(attribute, text);
    }

    fn only_calls(&self) -> bool {
        self.only_calls
    }
}

/// Context of OpenTelemetry with the caller's span and baggage.
pub(crate) fn context_of(trace: &TraceContext) -> Context {
    let mut headers = HashMap::new();
    let mut set = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            headers.insert(name.to_owned(), value.to_owned());
        }
    };
    set("traceparent", Some(trace.traceparent()));
    set("tracestate", trace.tracestate());
    set("baggage", trace.baggage());
    let caller = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    BaggagePropagator::new().extract_with_context(&caller, &headers)
}

/// Trace context for work below the span of `context`; `None` if the context has no span.
pub(crate) fn trace_of(context: &Context) -> Option<TraceContext> {
    let mut headers: HashMap<String, String> = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut headers);
    BaggagePropagator::new().inject_context(context, &mut headers);
    let header = |name: &str| headers.get(name).map_or("", String::as_str);
    let trace = TraceContext::new(header("traceparent"))?;
    let trace = trace.with_tracestate(header("tracestate"));
    Some(trace.with_baggage(header("baggage")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_context_survives_the_conversion() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = TraceContext::new(parent).unwrap();
        let trace = trace.with_tracestate("vendor=a,b=2").with_baggage("user=7");
        assert_eq!(trace_of(&context_of(&trace)), Some(trace));
        assert_eq!(trace_of(&Context::new()), None);
    }
}
