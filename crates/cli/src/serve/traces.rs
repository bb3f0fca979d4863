//! Traces of the executions (running tasks) over OTLP. A trace continues the caller's trace. A stop is an event of the
//! trace, with the cause of the stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allstop_core::{Cause, error_chain};
use allstop_task::{ExecutionObserver, Task, TaskState};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    Span as _, SpanKind, Status, TraceFlags, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use crate::error::CliError;

/// Timeout of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// Sends spans to a collector. The SDK has a thread and a queue for this purpose. If the queue is full, the SDK drops
/// spans.
#[derive(Debug, Clone)]
pub(super) struct TraceExporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl TraceExporter {
    /// Creates an exporter to this collector (`http://127.0.0.1:4318`), without sending anything.
    pub(super) fn new(collector: &str) -> Result<Self, CliError> {
        // Process-wide default for all TLS clients.
        let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
            .with_timeout(EXPORT_MAX)
            .build();
        let exporter = exporter.map_err(|error| {
            let why = error_chain(&error);
            CliError::usage(format!("traces cannot be sent to {collector}: {why}"))
                .hint("use a URL such as http://127.0.0.1:4318")
        })?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name("allstop").build())
            .build();
        let tracer = provider.tracer("allstop");
        Ok(Self { provider, tracer })
    }

    /// Begins the span of an execution.
    pub(super) fn accepted(&self, task: &Task, trace: Option<&str>) -> ExecutionSpan {
        let caller = trace.map_or_else(Context::new, |trace| {
            let headers = HashMap::from([("traceparent".to_owned(), trace.to_owned())]);
            TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
        });
        let span = self.tracer.span_builder("task execution");
        let span = span.with_kind(SpanKind::Server).with_attributes([
            KeyValue::new("allstop.task.id", task.id.to_string()),
            KeyValue::new("allstop.context.id", task.context_id.to_string()),
        ]);
        ExecutionSpan {
            span: span.start_with_context(&self.tracer, &caller),
        }
    }

    /// Sends the remaining spans, for at most the time `max`. Blocks the thread.
    pub(super) fn close(&self, max: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(max) {
            tracing::warn!(error = error_chain(&error), "some traces were not sent");
        }
    }
}

/// Span of one execution. Dropping this value ends the span.
#[derive(Debug)]
pub(super) struct ExecutionSpan {
    span: Span,
}

impl ExecutionObserver for ExecutionSpan {
    fn trace(&self) -> Option<Arc<str>> {
        let context = self.span.span_context();
        let (trace, span) = (context.trace_id(), context.span_id());
        let flags = context.trace_flags() & TraceFlags::SAMPLED;
        Some(format!("00-{trace}-{span}-{:02x}", flags.to_u8()).into())
    }

    fn started(&mut self) {
        self.span.add_event("started", Vec::new());
    }

    fn stopping(&mut self, cause: &Cause) {
        let mut attributes = vec![KeyValue::new("cause.kind", cause.kind.as_str())];
        let detail = cause.detail.as_deref().map(|text| ("cause.detail", text));
        let by = cause.by.as_deref().map(|text| ("cause.by", text));
        let texts = detail.into_iter().chain(by);
        attributes.extend(texts.map(|(key, text)| KeyValue::new(key, text.to_owned())));
        self.span.add_event("stop", attributes);
    }

    fn ended(&mut self, task: &Task) {
        let state = task.status.state;
        let attribute = KeyValue::new("allstop.task.state", state.to_string());
        self.span.set_attribute(attribute);
        if let Some(receipt) = &task.ending.receipt {
            let quiet = KeyValue::new("allstop.receipt.quiet", receipt.quiet());
            self.span.set_attribute(quiet);
        }
        if state == TaskState::Failed {
            let error = task.ending.error.as_deref().unwrap_or("failed");
            self.span.set_status(Status::error(error.to_owned()));
        }
    }
}
