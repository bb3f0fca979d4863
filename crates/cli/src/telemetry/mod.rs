//! Traces over OTLP, for all commands that run agents: one exporter, for the spans of turns, steps, model calls, tool
//! calls, hooks and guardrails, and for the spans of tasks. No span contains text of prompts, answers, arguments or
//! results.

mod execution_span;
mod sent_spans;
mod span_links;

use std::sync::Arc;
use std::time::Duration;

use allstop_agent::SpanLinks;
use allstop_core::{TraceContext, error_chain};
use allstop_task::Task;
use allstop_terminal::OutputQueue;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

pub(crate) use execution_span::ExecutionSpan;
use sent_spans::{CountedExporter, CountedProcessor, SentSpans};
use span_links::OtelLinks;

use crate::args::TraceArgs;
use crate::error::CliError;
use crate::host::ProcessHost;

/// Timeout of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// Maximum wait until the last spans are sent at the end of the process. A collector on the same network answers in
/// milliseconds, and a user does not notice half a second.
const LAST_SPANS_MAX: Duration = Duration::from_millis(500);

/// Crate with the spans that are exported. Spans of other crates, and all log lines, may contain text of a conversation.
const TARGET: &str = "allstop_agent";

/// Sends spans to a collector. The SDK has a thread and a bounded queue for this purpose. If the queue is full, the SDK
/// drops spans.
#[derive(Debug, Clone)]
pub(crate) struct TraceExporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    links: Arc<OtelLinks>,
    sent: Arc<SentSpans>,
}

impl TraceExporter {
    /// Creates the exporter that the flags and the environment select, without sending anything. `stderr` gets the
    /// warning about lost spans.
    ///
    /// # Errors
    /// If the URL of the collector is invalid.
    pub(crate) fn open(args: &TraceArgs, stderr: OutputQueue) -> Result<Option<Self>, CliError> {
        let is_disabled = ProcessHost::text_variable("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        match args.collector() {
            Some(collector) if !is_disabled => Self::new(collector, stderr).map(Some),
            _ => Ok(None),
        }
    }

    fn new(collector: &str, stderr: OutputQueue) -> Result<Self, CliError> {
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
        let sent = Arc::new(SentSpans::new(collector, stderr));
        let exporter = CountedExporter::new(exporter, Arc::clone(&sent));
        let batches = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(CountedProcessor::new(batches, Arc::clone(&sent)))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer("allstop");
        Ok(Self {
            provider,
            tracer,
            links: Arc::new(OtelLinks),
            sent,
        })
    }

    /// Layer that makes spans of `tracing` spans of the exporter.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(filter_fn(|metadata| {
                metadata.is_span() && metadata.target().starts_with(TARGET)
            }))
    }

    /// Connection of the agents' spans with this exporter.
    pub(crate) fn links(&self) -> Arc<dyn SpanLinks> {
        Arc::clone(&self.links) as _
    }

    /// Begins the span of an execution, which continues the trace of the caller.
    pub(crate) fn execution(&self, task: &Task, caller: Option<&TraceContext>) -> ExecutionSpan {
        ExecutionSpan::begin(&self.tracer, task, caller)
    }

    /// Sends the remaining spans, for at most `max`, and warns about lost spans. Blocks the thread.
    pub(crate) fn close(&self, max: Duration) {
        // Lost spans are counted, so the result adds nothing.
        let _shut_down = self.provider.shutdown_with_timeout(max.min(LAST_SPANS_MAX));
        self.sent.warn_if_lost();
    }
}

/// Layer of an exporter that may be absent.
pub(crate) fn layer<S>(exporter: Option<&TraceExporter>) -> Option<impl Layer<S> + use<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    exporter.map(TraceExporter::layer)
}

/// Description of this process. The variables `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` change it.
fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&"service.name".into());
    let has_name = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder_empty()
        .with_attribute(version)
        .with_attributes(
            named
                .iter()
                .map(|(key, value)| KeyValue::new(key.clone(), value.clone())),
        );
    if has_name {
        resource.build()
    } else {
        resource.with_service_name("allstop").build()
    }
}
