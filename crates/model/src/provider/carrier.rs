//! Carriers of requests: another program sends the requests of a model, in place of the HTTP client of this crate.

use std::fmt;

use allstop_core::SessionId;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::client::USER_AGENT;
use super::protocol::Protocol;
use crate::probe::ConnectionProbe;

/// Sends the requests of a model to its provider, in place of the HTTP client of this crate.
pub trait RequestCarrier: Send + Sync + fmt::Debug {
    /// Sends a request. Returns the response as soon as its status and its headers have arrived.
    ///
    /// The carrier registers the request as outside work of the request's probe, until the other side has confirmed the
    /// end of the request. So the receipt of a stop reports a request that may still run.
    ///
    /// # Errors
    /// If the request cannot be sent, or no response arrives.
    ///
    /// # Cancel safety
    /// Dropping the future, or the body of the response, cancels the request.
    fn carry(
        &self,
        request: CarriedRequest,
    ) -> BoxFuture<'_, Result<CarriedResponse, CarrierError>>;
}

/// A request of a model, ready to be sent. The text for developers contains no secrets.
#[non_exhaustive]
pub struct CarriedRequest {
    /// Method of the request, in capital letters.
    pub method: String,
    /// URL of the request.
    pub url: String,
    /// Headers of the request, with the key of the provider. The names are in lower case.
    pub headers: Vec<(String, String)>,
    /// Body of the request, which is JSON.
    pub body: String,
    /// Session that sends the request.
    pub session: Option<SessionId>,
    /// Probe of the call.
    pub probe: ConnectionProbe,
}

impl CarriedRequest {
    /// Creates a request from a request of the HTTP client, with another body.
    pub(super) fn of(head: &reqwest::Request, body: String) -> Self {
        let mut all = head.headers().clone();
        all.entry(http::header::USER_AGENT)
            .or_insert_with(|| http::HeaderValue::from_static(USER_AGENT));
        let headers = all.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes());
            (name.as_str().to_owned(), value.into_owned())
        });
        Self {
            method: head.method().to_string(),
            url: head.url().to_string(),
            headers: headers.collect(),
            body,
            session: None,
            probe: ConnectionProbe::default(),
        }
    }
}

impl fmt::Debug for CarriedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarriedRequest")
            .field("method", &self.method)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// A response to a carried request.
pub struct CarriedResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers of the response. Headers with invalid names or values are left out.
    pub headers: Vec<(String, String)>,
    /// Pieces of the body. No piece follows an error.
    pub body: BoxStream<'static, Result<Bytes, CarrierError>>,
}

impl fmt::Debug for CarriedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarriedResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Failure of a carrier, with a text for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CarrierError(pub String);

/// Protocol of a server, for a URL from which it cannot be derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireProtocol {
    /// `OpenAI`'s chat completions API.
    ChatCompletions,
    /// `OpenAI`'s responses API.
    Responses,
    /// Anthropic's messages API.
    Messages,
}

impl WireProtocol {
    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::ChatCompletions => Protocol::ChatCompletions,
            Self::Responses => Protocol::Responses,
            Self::Messages => Protocol::Messages,
        }
    }
}

impl CarriedResponse {
    /// Converts the response to a response of the HTTP client.
    pub(super) fn into_http(self) -> Result<reqwest::Response, CarrierError> {
        let Self {
            status,
            headers,
            body,
        } = self;
        let mut response = http::Response::builder().status(status);
        if let Some(all) = response.headers_mut() {
            let parsed = headers.iter().filter_map(|(name, value)| {
                let name = http::HeaderName::try_from(name).ok()?;
                Some((name, http::HeaderValue::try_from(value).ok()?))
            });
            all.extend(parsed);
        }
        let response = response.body(reqwest::Body::wrap_stream(body));
        let response = response.map_err(|_| CarrierError(format!("invalid status {status}")))?;
        Ok(response.into())
    }
}
