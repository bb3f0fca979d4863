//! HTTP client of a connection to an MCP server. The client checks each message before the protocol library parses it.
//!
//! The library's own client parses the body of a response without this check, so a server could overflow the stack of
//! the process (see [`has_reserved_key`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allstop_core::json_text::has_reserved_key;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::calls::OpenCalls;
use super::cancellation::only_closes_response;
use super::connection_loss::ConnectionLoss;
use super::deep_answer::replacement;
use super::discovery;
use super::legacy_events::{LegacyEvents, is_refused_handshake};
use super::limits::{ERROR_BODY_BYTES_MAX, MESSAGE_BYTES_MAX};
use super::token_origin::TokenOrigin;

/// Reason why this side ends a connection, over HTTP or over pipes: a message must not be parsed.
pub(super) const RESERVED_KEY: &str = "it sent an object with a key that is reserved";

/// Client that ends the connection when it receives a message that must not be parsed.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    pub(super) client: reqwest::Client,
    /// Name of the server.
    pub(super) server: Arc<str>,
    pub(super) access: TokenOrigin,
    pub(super) calls: Arc<OpenCalls>,
    pub(super) loss: ConnectionLoss,
    pub(super) legacy: LegacyEvents,
}

type HttpError = StreamableHttpError<reqwest::Error>;
pub(super) type HttpResult<T> = Result<T, HttpError>;
pub(super) type Headers = HashMap<HeaderName, HeaderValue>;
pub(super) type EventStream = BoxStream<'static, Result<Sse, SseError>>;

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        url: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> HttpResult<StreamableHttpPostResponse> {
        if only_closes_response(&message) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if let Some(endpoint) = self.legacy.endpoint() {
            return self.post_to_endpoint(&endpoint, &message, headers).await;
        }
        let accepted = [JSON_MIME_TYPE, EVENT_STREAM_MIME_TYPE].join(", ");
        let post = self
            .client
            .post(&*url)
            .headers(headers.clone().into_iter().collect())
            .header(ACCEPT, accepted);
        let post = with_token_and_session(post, token, session.as_deref());
        let post = post.json(&message);
        if let Some(id) = discovery::request_id(&message) {
            return self.discover(post, id).await;
        }
        let given = self.given_token();
        let response = self.send(post).await?;
        if let Some(why) = self.refused_call(&message, &response, given) {
            return Err(StreamableHttpError::UnexpectedServerResponse(why.into()));
        }
        if response.status() == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if is_refused_handshake(&message, response.status())
            && let Some(answer) = self.begin_legacy(&url, &message, headers).await?
        {
            return Ok(answer);
        }
        let needs_answer = matches!(message, JsonRpcMessage::Request(_));
        self.answer_to(&message, response, needs_answer).await
    }

    async fn delete_session(
        &self,
        url: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> HttpResult<()> {
        if self.legacy.endpoint().is_some() {
            self.legacy.close();
            return Ok(());
        }
        let token = self.token(token).await;
        let client = &self.client;
        client.delete_session(url, session, token, headers).await
    }

    async fn get_stream(
        &self,
        url: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> HttpResult<EventStream> {
        if self.legacy.endpoint().is_some() {
            return self.legacy.take_events();
        }
        let token = self.token(token).await;
        let client = &self.client;
        let events = client.get_stream_with_max_sse_event_size(
            url,
            session,
            last_event_id,
            token,
            headers,
            MESSAGE_BYTES_MAX,
        );
        Ok(self.checked(events.await?))
    }
}

fn with_token_and_session(
    mut request: RequestBuilder,
    token: Option<String>,
    session: Option<&str>,
) -> RequestBuilder {
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    match session {
        Some(session) => request.header(HEADER_SESSION_ID, session),
        None => request,
    }
}

impl HttpClient {
    /// Reads a response by the rules of MCP
    /// (<https://modelcontextprotocol.io/specification/2025-06-18/basic/transports#sending-messages-to-the-server>).
    pub(super) async fn answer(
        &self,
        response: Response,
        needs_answer: bool,
    ) -> HttpResult<StreamableHttpPostResponse> {
        let status = response.status();
        if let Some(why) = self.refusal(&response) {
            if status == StatusCode::UNAUTHORIZED || matches!(self.access, TokenOrigin::Given(_)) {
                self.loss.access_denied(&why);
            }
            return Err(StreamableHttpError::UnexpectedServerResponse(why.into()));
        }
        // Some servers accept a notification with status 200 and an empty body.
        let is_empty = status.is_success() && response.content_length() == Some(0);
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            || (is_empty && !needs_answer)
        {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let header = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let session = header(HEADER_SESSION_ID);
        let content_type = header(CONTENT_TYPE.as_str());
        let has_type = |wanted: &str| {
            let content_type = content_type.as_deref().unwrap_or_default();
            content_type.starts_with(wanted)
        };
        if status.is_success() && has_type(EVENT_STREAM_MIME_TYPE) {
            let events = self.checked(bounded_events(response));
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let is_json = has_type(JSON_MIME_TYPE);
        if status.is_success() && !is_json {
            return Err(StreamableHttpError::UnexpectedContentType(content_type));
        }
        let body = read_body(response).await?;
        // A refusal with status 403 is reported with this status, and its body is not parsed. The usual cause is a key
        // without the necessary rights.
        let is_answer = is_json && status != StatusCode::FORBIDDEN;
        let read = is_answer.then(|| self.parse(&body)).transpose()?;
        match read {
            Some(Ok(message))
                if status.is_success() || matches!(message, JsonRpcMessage::Error(_)) =>
            {
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            Some(Err(_)) if status.is_success() && !needs_answer => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            Some(Err(error)) if status.is_success() => Err(StreamableHttpError::Deserialize(error)),
            _ => {
                let text = String::from_utf8_lossy(&body);
                let text = format!("HTTP {status}: {}", text.trim());
                Err(StreamableHttpError::UnexpectedServerResponse(text.into()))
            }
        }
    }

    pub(super) fn parse(
        &self,
        body: &[u8],
    ) -> HttpResult<serde_json::Result<ServerJsonRpcMessage>> {
        if has_reserved_key(body) {
            self.loss.by_us(RESERVED_KEY);
            let why = RESERVED_KEY.into();
            return Err(StreamableHttpError::UnexpectedServerResponse(why));
        }
        Ok(match replacement(body) {
            None => serde_json::from_slice(body),
            Some(instead) => serde_json::from_str(&instead),
        })
    }

    pub(super) fn checked(&self, events: EventStream) -> EventStream {
        let loss = self.loss.clone();
        let checked = events.map(move |event| {
            let mut event = event?;
            let data = event.data.as_deref().unwrap_or_default();
            if has_reserved_key(data.as_bytes()) {
                loss.by_us(RESERVED_KEY);
                return Err(SseError::Body(RESERVED_KEY.into()));
            }
            if let Some(instead) = replacement(data.as_bytes()) {
                event.data = Some(instead);
            }
            Ok(event)
        });
        checked.boxed()
    }
}

/// Events of a response. If an event is too long, the stream ends.
pub(super) fn bounded_events(response: Response) -> EventStream {
    // Number of bytes since the last event. Bytes in the chunk in which that event ended do not count.
    let held = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&held);
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| error.to_string())?;
        let before = counted.fetch_add(chunk.len(), Ordering::Relaxed);
        if before + chunk.len() > MESSAGE_BYTES_MAX {
            return Err(format!(
                "it sent more than {MESSAGE_BYTES_MAX} bytes in one event"
            ));
        }
        Ok(chunk)
    });
    let bytes = bytes.map(|chunk| chunk.map_err(std::io::Error::other));
    let events = SseStream::from_bytes_stream(bytes);
    let events = events.inspect(move |_event| held.store(0, Ordering::Relaxed));
    events.boxed()
}

/// Reads the whole body, up to a size limit.
async fn read_body(mut response: Response) -> HttpResult<Vec<u8>> {
    let max_size = if response.status().is_success() {
        MESSAGE_BYTES_MAX
    } else {
        ERROR_BODY_BYTES_MAX
    };
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(StreamableHttpError::Client)?
    {
        if body.len() + chunk.len() > max_size {
            return Err(StreamableHttpError::ResponseBodyTooLarge { max_size });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
