//! HTTP client of the exporter. The SDK repeats a failed request and reports a network error without its reason, so this
//! client keeps the reason.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

use crate::sent_spans::SentSpans;

/// Client that notes the reason of each failed request.
#[derive(Debug)]
pub(crate) struct CollectorClient {
    client: reqwest::blocking::Client,
    spans: Arc<SentSpans>,
}

impl CollectorClient {
    /// Creates the client. `timeout` limits each request.
    pub(crate) fn new(timeout: Duration, spans: Arc<SentSpans>) -> reqwest::Result<Self> {
        let connect = || {
            reqwest::blocking::Client::builder()
                .timeout(timeout)
                .build()
        };
        // A blocking client cannot be built on a thread of an asynchronous runtime.
        let joined = std::thread::scope(|threads| threads.spawn(connect).join());
        let client = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Self { client, spans })
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.client.send_bytes(request).await;
        self.spans.note_request(sent.as_ref().map(drop));
        sent
    }
}
