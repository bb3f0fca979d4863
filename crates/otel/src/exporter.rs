//! The exporter: the connection between the spans of `tracing` and a collector.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use allstop_agent::SpanLinks;
#[cfg(feature = "tasks")]
use allstop_core::TraceContext;
use allstop_core::error_chain;
#[cfg(feature = "tasks")]
use allstop_task::Task;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanExporter};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::collector_client::CollectorClient;
#[cfg(feature = "tasks")]
use crate::execution_span::ExecutionSpan;
use crate::file_exporter::{FileExporter, TraceFile};
use crate::lost_spans::LostSpans;
use crate::sent_spans::{CountedExporter, CountedProcessor, SentSpans};
use crate::span_links::OtelLinks;

/// Timeout of one export.
const EXPORT_MAX: Duration = Duration::from_secs(5);

/// Crate with the spans that are exported. Spans of other crates, and all log lines, may contain text of a conversation.
const TARGET: &str = "allstop_agent";

/// Sends spans to a collector, or appends them to a file. The SDK has a thread and a bounded queue for this purpose, so a collector delays no work.
/// If the queue is full, the SDK drops spans. Clones share the exporter.
#[derive(Debug, Clone)]
pub struct TraceExporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    links: Arc<OtelLinks>,
    sent: Arc<SentSpans>,
    is_file: bool,
}

/// An exporter could not be created, for example because the URL of its collector is invalid.
#[derive(Debug, thiserror::Error)]
#[error("traces cannot be sent to {collector}: {why}", why = error_chain(&**source))]
pub struct ExporterError {
    collector: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl TraceExporter {
    /// Creates the exporter for a collector, such as `http://127.0.0.1:4318`, without sending anything. It uses HTTP with
    /// protobuf, and the variables `OTEL_*` for headers, sampling, the queue and the description of the process.
    ///
    /// `on_lost` gets the first loss of spans. It runs on the thread of the SDK or in [`TraceExporter::close`].
    ///
    /// # Errors
    /// If the URL is invalid, or if the HTTP client cannot be created.
    pub fn new(
        collector: &str,
        on_lost: impl Fn(&LostSpans) + Send + Sync + 'static,
    ) -> Result<Self, ExporterError> {
        // Process-wide default for all TLS clients.
        let _first_is_kept = rustls::crypto::ring::default_provider().install_default();
        let failed = |source| ExporterError {
            collector: collector.to_owned(),
            source,
        };
        let sent = Arc::new(SentSpans::new(collector, on_lost));
        let client = CollectorClient::new(EXPORT_MAX, Arc::clone(&sent));
        let client = client.map_err(|error| failed(error.into()))?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
            .with_timeout(EXPORT_MAX)
            .build();
        let exporter = exporter.map_err(|error| failed(error.into()))?;
        Ok(Self::with(exporter, "allstop", OtelLinks::default(), sent))
    }

    /// Creates an exporter that appends the spans to a file, as lines of JSON. Only turns, model calls and tool calls
    /// have spans.
    ///
    /// `on_lost` gets the first loss of spans, as in [`TraceExporter::new`].
    ///
    /// # Errors
    /// If the file cannot be opened or created.
    pub fn to_file(
        file: TraceFile,
        on_lost: impl Fn(&LostSpans) + Send + Sync + 'static,
    ) -> Result<Self, ExporterError> {
        let name = file.path.display().to_string();
        let exporter = FileExporter::open(&file.path).map_err(|error| ExporterError {
            collector: name.clone(),
            source: error.into(),
        })?;
        let links = OtelLinks {
            keeps_texts: file.keeps_texts,
            only_calls: true,
        };
        let sent = Arc::new(SentSpans::new(&name, on_lost));
        Ok(Self {
            is_file: true,
            ..Self::with(exporter, file.source, links, sent)
        })
    }

    fn with(
        exporter: impl SpanExporter + 'static,
        source: impl Into<Cow<'static, str>>,
        links: OtelLinks,
        sent: Arc<SentSpans>,
    ) -> Self {
        let exporter = CountedExporter::new(exporter, Arc::clone(&sent));
        let batches = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(CountedProcessor::new(batches, Arc::clone(&sent)))
            .with_resource(resource())
            .build();
        let tracer = provider.tracer(source);
        Self {
            provider,
            tracer,
            links: Arc::new(links),
            sent,
            is_file: false,
        }
    }

    /// Layer that makes spans of `tracing` spans of the exporter.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
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

    /// Connection of the agents' spans with this exporter, for `AgentBuilder::spans`.
    pub fn links(&self) -> Arc<dyn SpanLinks> {
        Arc::clone(&self.links) as _
    }

    /// Begins the span of an execution (a running task), which continues the trace of the caller.
    #[cfg(feature = "tasks")]
    pub fn execution(&self, task: &Task, caller: Option<&TraceContext>) -> ExecutionSpan {
        ExecutionSpan::begin(&self.tracer, task, caller)
    }

    /// Writes the ended spans to the file of [`TraceExporter::to_file`]. Without a file, does nothing: a collector may need
    /// seconds. Blocks the thread.
    pub fn flush_file(&self) {
        if self.is_file {
            // Lost spans are counted, so the result adds nothing.
            let _flushed = self.provider.force_flush();
        }
    }

    /// Sends the remaining spans, for at most `max`, and reports lost spans. Blocks the thread. Spans that end later are
    /// lost.
    pub fn close(&self, max: Duration) {
        // Lost spans are counted, so the result adds nothing.
        let _shut_down = self.provider.shutdown_with_timeout(max);
        self.sent.report_if_lost();
    }
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
