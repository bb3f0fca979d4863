//! Span of an execution (a running task). A stop is an event of the span, with the cause of the stop.

use allstop_core::{Cause, CauseKind, TraceContext};
use allstop_task::{ExecutionObserver, Task, TaskState};
use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use crate::span_links::{context_of, trace_of};

/// Span of one execution. Dropping this value ends the span.
#[derive(Debug)]
pub struct ExecutionSpan {
    span: Span,
    /// Trace context of the span, with the baggage of the caller.
    trace: Option<TraceContext>,
}

impl ExecutionSpan {
    pub(crate) fn begin(tracer: &SdkTracer, task: &Task, caller: Option<&TraceContext>) -> Self {
        let caller = caller.map_or_else(Context::new, context_of);
        let span = tracer.span_builder("task execution");
        let span = span.with_kind(SpanKind::Server).with_attributes([
            KeyValue::new("allstop.task.id", task.id.to_string()),
            KeyValue::new("allstop.context.id", task.context_id.to_string()),
        ]);
        let span = span.start_with_context(tracer, &caller);
        let inside = caller.with_remote_span_context(span.span_context().clone());
        Self {
            trace: trace_of(&inside),
            span,
        }
    }
}

impl ExecutionObserver for ExecutionSpan {
    fn trace(&self) -> Option<TraceContext> {
        self.trace.clone()
    }

    fn started(&mut self) {
        self.span.add_event("started", Vec::new());
    }

    fn stopping(&mut self, cause: &Cause) {
        let mut attributes = vec![KeyValue::new("cause.kind", cause.kind.as_str())];
        let by = cause.by.as_deref().map(|text| ("cause.by", text));
        let texts = detail_of(cause)
            .map(|text| ("cause.detail", text))
            .into_iter()
            .chain(by);
        attributes.extend(texts.map(|(key, text)| KeyValue::new(key, text.to_owned())));
        self.span.add_event("stop", attributes);
    }

    fn ended(&mut self, task: &Task) {
        let state = task.status.state;
        let attribute = KeyValue::new("allstop.task.state", state.to_string());
        self.span.set_attribute(attribute);
        if let Some(receipt) = &task.ending.receipt {
            let quiet = KeyValue::new("allstop.stop.quiet", receipt.quiet());
            self.span.set_attribute(quiet);
            let cause = receipt.cause().kind.as_str();
            self.span
                .set_attribute(KeyValue::new("allstop.stop.cause", cause));
        }
        if state == TaskState::Failed {
            // The text of the error may quote a prompt.
            self.span.set_status(Status::error(""));
        }
    }
}

/// Detail of a cause, unless the detail can quote a text of the conversation or of a provider.
fn detail_of(cause: &Cause) -> Option<&str> {
    let quotes = matches!(cause.kind, CauseKind::Failure | CauseKind::Guardrail);
    cause.detail.as_deref().filter(|_| !quotes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the message of a failure and the reason of a guardrail were sent to the collector.
    #[test]
    fn details_that_can_quote_a_text_are_not_sent() {
        for (kind, is_sent) in [
            (CauseKind::User, true),
            (CauseKind::Deadline, true),
            (CauseKind::Failure, false),
            (CauseKind::Guardrail, false),
        ] {
            let cause = Cause::new(kind).detail("the prompt was: secret");
            assert_eq!(detail_of(&cause).is_some(), is_sent, "{kind:?}");
        }
    }
}
