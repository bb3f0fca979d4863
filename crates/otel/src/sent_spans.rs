//! Count of the spans that ended and of the spans that the collector has accepted. The difference is reported once.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use allstop_core::error_chain;
use opentelemetry::{Array, Context, Key, StringValue, Value};
use opentelemetry_http::HttpError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};
use parking_lot::Mutex;

use crate::lost_spans::LostSpans;

/// Attribute that is a list by the conventions. `tracing` has no lists.
const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";

/// Numbers of the spans of this process.
pub(crate) struct SentSpans {
    collector: String,
    on_lost: Box<dyn Fn(&LostSpans) + Send + Sync>,
    ended: AtomicU64,
    sent: AtomicU64,
    is_reported: AtomicBool,
    /// Reason why the last request did not reach the collector.
    unreached: Mutex<Option<String>>,
}

impl fmt::Debug for SentSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentSpans")
            .field("ended", &self.ended)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl SentSpans {
    pub(crate) fn new(
        collector: &str,
        on_lost: impl Fn(&LostSpans) + Send + Sync + 'static,
    ) -> Self {
        Self {
            collector: collector.to_owned(),
            on_lost: Box::new(on_lost),
            ended: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            unreached: Mutex::new(None),
        }
    }

    /// Notes the result of a request. The SDK repeats a request that does not reach the collector, so the loss of spans is
    /// reported later.
    pub(crate) fn note_request(&self, sent: Result<(), &HttpError>) {
        *self.unreached.lock() = sent.err().map(|error| first_cause(&**error).to_string());
    }

    /// Reports spans that were not sent, unless an earlier report has named the problem.
    pub(crate) fn report_if_lost(&self) {
        let ended = self.ended.load(Ordering::Acquire);
        let lost = ended.saturating_sub(self.sent.load(Ordering::Acquire));
        if lost > 0 {
            self.report(lost, "no answer in time");
        }
    }

    fn report(&self, count: u64, why: &str) {
        if self.is_reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let why = self
            .unreached
            .lock()
            .take()
            .unwrap_or_else(|| why.to_owned());
        (self.on_lost)(&LostSpans {
            count,
            collector: self.collector.clone(),
            why,
        });
    }
}

/// Innermost cause of an error. The outer errors of the HTTP client quote the URL.
fn first_cause<'a>(mut error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

/// Exporter that counts the accepted spans, and reports the first failure at once.
#[derive(Debug)]
pub(crate) struct CountedExporter<E> {
    exporter: E,
    spans: Arc<SentSpans>,
}

impl<E> CountedExporter<E> {
    pub(crate) fn new(exporter: E, spans: Arc<SentSpans>) -> Self {
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
            Err(error) => self.spans.report(count, &error_chain(error)),
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
pub(crate) struct CountedProcessor {
    batches: BatchSpanProcessor,
    spans: Arc<SentSpans>,
}

impl CountedProcessor {
    pub(crate) fn new(batches: BatchSpanProcessor, spans: Arc<SentSpans>) -> Self {
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
