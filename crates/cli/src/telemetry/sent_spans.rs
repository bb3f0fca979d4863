//! Count of the spans that ended and of the spans that the collector has accepted. The difference is reported once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use allstop_core::counted::counted;
use allstop_core::error_chain;
use allstop_terminal::{OutputPriority, OutputQueue, Styled};
use opentelemetry::{Array, Context, Key, StringValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

/// Attribute that is a list by the conventions. `tracing` has no lists.
const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";

/// Numbers of the spans of this process.
#[derive(Debug)]
pub(super) struct SentSpans {
    collector: String,
    stderr: OutputQueue,
    ended: AtomicU64,
    sent: AtomicU64,
    is_reported: AtomicBool,
}

impl SentSpans {
    pub(super) fn new(collector: &str, stderr: OutputQueue) -> Self {
        Self {
            collector: collector.to_owned(),
            stderr,
            ended: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Warns if spans were not sent, unless an earlier warning has named the problem.
    pub(super) fn warn_if_lost(&self) {
        let ended = self.ended.load(Ordering::Acquire);
        let lost = ended.saturating_sub(self.sent.load(Ordering::Acquire));
        if lost > 0 {
            self.warn(lost, "no answer in time");
        }
    }

    fn warn(&self, lost: u64, why: &str) {
        if self.is_reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let lost = counted(lost, "span was", "spans were");
        let collector = &self.collector;
        let warning = format!("traces are incomplete: {lost} not sent to {collector}: {why}");
        self.stderr
            .sentences(Styled::text(&warning), OutputPriority::Required);
    }
}

/// Exporter that counts the accepted spans, and reports the first failure at once.
#[derive(Debug)]
pub(super) struct CountedExporter<E> {
    exporter: E,
    spans: Arc<SentSpans>,
}

impl<E> CountedExporter<E> {
    pub(super) fn new(exporter: E, spans: Arc<SentSpans>) -> Self {
        Self { exporter, spans }
    }
}

impl<E: SpanExporter> SpanExporter for CountedExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            list_finish_reasons(span);
        }
        let count = batch.len() as u64;
        let exported = self.exporter.export(batch).await;
        match &exported {
            Ok(()) => {
                self.spans.sent.fetch_add(count, Ordering::AcqRel);
            }
            Err(error) => self.spans.warn(count, &error_chain(error)),
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn list_finish_reasons(span: &mut SpanData) {
    let key = Key::from_static_str(FINISH_REASONS);
    let attributes = span.attributes.iter_mut();
    for attribute in attributes.filter(|attribute| attribute.key == key) {
        if let Value::String(reason) = &attribute.value {
            let reasons: Vec<StringValue> = vec![reason.clone()];
            attribute.value = Value::Array(Array::String(reasons));
        }
    }
}

/// Processor that counts the ended spans.
#[derive(Debug)]
pub(super) struct CountedProcessor {
    batches: BatchSpanProcessor,
    spans: Arc<SentSpans>,
}

impl CountedProcessor {
    pub(super) fn new(batches: BatchSpanProcessor, spans: Arc<SentSpans>) -> Self {
        Self { batches, spans }
    }
}

impl SpanProcessor for CountedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.spans.ended.fetch_add(1, Ordering::AcqRel);
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}
