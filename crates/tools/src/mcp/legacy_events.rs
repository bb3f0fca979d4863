//! The HTTP transport of revision 2024-11-05: the server sends all its messages in one stream of events, and the first
//! event names the endpoint for the messages of the client.
//!
//! A server with only this transport refuses the handshake with status 400, 404 or 405, and the client then opens the
//! stream
//! (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#backwards-compatibility>). For the protocol
//! library, the stream is the stream of a session without requests.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::once;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use parking_lot::Mutex;
use reqwest::Url;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage};
use rmcp::transport::common::http_header::EVENT_STREAM_MIME_TYPE;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpError, StreamableHttpPostResponse,
};
use tokio::time::timeout;

use super::http_client::{EventStream, Headers, HttpClient, HttpResult, bounded_events};
use super::limits::DISCOVERY_WAIT;

/// Name of the session in the protocol library. The server never gets it.
const SESSION: &str = "events";

/// Reason of a connection whose stream has ended.
const ENDED: &str = "it closed its stream of events";

/// State of a connection with this transport. Empty for a connection with the later transport.
#[derive(Clone, Default)]
pub(super) struct LegacyEvents(Arc<Mutex<LegacyState>>);

#[derive(Default)]
struct LegacyState {
    endpoint: Option<Url>,
    /// The stream after the answer to the handshake, until the protocol library takes it.
    events: Option<EventStream>,
}

impl fmt::Debug for LegacyEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LegacyEvents")
    }
}

impl LegacyEvents {
    /// Address for the messages of the client.
    pub(super) fn endpoint(&self) -> Option<Url> {
        self.0.lock().endpoint.clone()
    }

    /// The stream of the server's messages. There is no second one, because the server has ended the session with it.
    pub(super) fn take_events(&self) -> HttpResult<EventStream> {
        let events = self.0.lock().events.take();
        events.ok_or_else(|| StreamableHttpError::UnexpectedServerResponse(ENDED.into()))
    }

    /// Closes a stream that was not taken.
    pub(super) fn close(&self) {
        drop(self.0.lock().events.take());
    }
}

/// True if a server that answers a message with this status may have only the transport of this module.
pub(super) fn is_refused_handshake(message: &ClientJsonRpcMessage, status: StatusCode) -> bool {
    let refusals = [
        StatusCode::BAD_REQUEST,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
    ];
    let is_handshake = matches!(message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)));
    is_handshake && refusals.contains(&status)
}

/// The endpoint in the first event. The headers of a connection, such as its credentials, are only for one host.
fn endpoint_of(stream: &str, named: &str) -> Result<Url, &'static str> {
    let stream = Url::parse(stream).map_err(|_invalid| "its URL is invalid")?;
    let endpoint = stream.join(named.trim());
    let endpoint = endpoint.map_err(|_invalid| "its endpoint for messages has no valid URL")?;
    if endpoint.origin() == stream.origin() {
        Ok(endpoint)
    } else {
        Err("its endpoint for messages belongs to another host; configure the URL of that host")
    }
}

impl HttpClient {
    /// Opens the stream, and repeats the handshake at its endpoint. `None` if the server has no such stream.
    pub(super) async fn begin_legacy(
        &self,
        url: &str,
        handshake: &ClientJsonRpcMessage,
        headers: Headers,
    ) -> HttpResult<Option<StreamableHttpPostResponse>> {
        let JsonRpcMessage::Request(request) = handshake else {
            return Ok(None);
        };
        let get = self
            .client
            .get(url)
            .headers(headers.clone().into_iter().collect());
        let Ok(response) = self.send(get.header(ACCEPT, EVENT_STREAM_MIME_TYPE)).await else {
            return Ok(None);
        };
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let is_stream = content_type.is_some_and(|value| value.starts_with(EVENT_STREAM_MIME_TYPE));
        if !response.status().is_success() || !is_stream {
            return Ok(None);
        }
        let mut events = self.checked(bounded_events(response));
        let first = timeout(DISCOVERY_WAIT, events.next()).await;
        let Some(Ok(first)) = first.ok().flatten() else {
            return Ok(None);
        };
        if first.event.as_deref() != Some("endpoint") {
            return Ok(None);
        }
        let endpoint = endpoint_of(url, first.data.as_deref().unwrap_or_default());
        let endpoint =
            endpoint.map_err(|why| StreamableHttpError::UnexpectedServerResponse(why.into()))?;
        self.post_to_endpoint(&endpoint, handshake, headers).await?;
        while let Some(event) = events.next().await {
            let data = event?.data.unwrap_or_default();
            let Ok(message) = self.parse(data.as_bytes())? else {
                continue;
            };
            let answered = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
            };
            if answered == Some(&request.id) {
                let mut state = self.legacy.0.lock();
                state.endpoint = Some(endpoint);
                state.events = Some(self.with_end(events));
                let session = Some(SESSION.to_owned());
                return Ok(Some(StreamableHttpPostResponse::Json(message, session)));
            }
        }
        Err(StreamableHttpError::UnexpectedServerResponse(ENDED.into()))
    }

    /// Sends a message. Its answer comes in the stream.
    pub(super) async fn post_to_endpoint(
        &self,
        endpoint: &Url,
        message: &ClientJsonRpcMessage,
        headers: Headers,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let post = self.client.post(endpoint.clone());
        let post = post.headers(headers.into_iter().collect()).json(message);
        let response = self.send(post).await?;
        if response.status().is_success() {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        self.answer_to(message, response, false).await
    }

    /// Records the end of the stream, which is the end of the connection.
    fn with_end(&self, events: EventStream) -> EventStream {
        let loss = self.loss.clone();
        let end = once(async move {
            loss.by_server(ENDED);
            Err(SseError::Body(ENDED.into()))
        });
        let loss = self.loss.clone();
        let events = events.inspect(move |event| {
            if event.is_err() {
                loss.by_server(ENDED);
            }
        });
        events.chain(end).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_belongs_to_the_host_of_the_stream() {
        let at = |named: &str| endpoint_of("https://h.example:8443/a/sse?k=1", named);
        for (named, url) in [
            ("/messages?id=1", "https://h.example:8443/messages?id=1"),
            ("messages\n", "https://h.example:8443/a/messages"),
            ("https://h.example:8443/m", "https://h.example:8443/m"),
        ] {
            assert_eq!(at(named).unwrap().as_str(), url);
        }
        for foreign in [
            "https://h.example/m",
            "http://h.example:8443/m",
            "//evil.example/m",
            "https://h.example:8443@evil.example/m",
            "file:///etc/passwd",
            "data:,x",
        ] {
            assert!(at(foreign).is_err(), "{foreign}");
        }
    }
}
