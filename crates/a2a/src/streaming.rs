//! Streaming responses with record numbers as event ids, so that `Last-Event-ID` resumes a stream without a gap.
//!
//! The library numbers the events of each response from 1. This module therefore answers the streaming requests of
//! JSON-RPC and REST itself. It also routes the lists of JSON-RPC to [`listing`], because the library changes their
//! requests.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Duration;

use a2a::{
    A2AError, JsonRpcId, JsonRpcRequest, JsonRpcResponse, SendMessageRequest, StreamResponse,
    SubscribeToTaskRequest, methods,
};
use a2a_pb::protojson_conv;
use a2a_server::ServiceParams;
use allstop_log::Version;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::AccessControl;
use crate::errors::invalid;
use crate::events::{NumberedEvent, until_revoked};
use crate::limits::WholeRequest;
use crate::service::A2aService;
use crate::v0_3::{comments, event};
use crate::{jsonrpc, listing, rest};

/// Interval of comments in a silent stream. The interval is shorter than the idle timeouts of clients and proxies. The
/// official Python client has the shortest known timeout, 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// Parts of a JSON-RPC request that determine whether the request streams. The other parts are parsed later, by the
/// code that answers the request.
#[derive(Deserialize)]
struct RequestHead<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
}

impl<'a> RequestHead<'a> {
    fn of(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}

/// Returns the response to a streaming request, to a list over JSON-RPC, and to a JSON-RPC request with a content type other than JSON. Returns
/// `None` for malformed requests, because the library describes the error to the client. The request has version 1.
pub(crate) async fn answer(
    service: &A2aService,
    access: &AccessControl,
    request: &WholeRequest,
) -> Option<Response> {
    let (path, headers) = (request.uri().path(), request.headers());
    let revoked = || access.revoked(headers);
    // The specification requires POST for a subscription, but clients of event streams often support only GET.
    let may_subscribe = [Method::GET, Method::POST].contains(request.method());
    if let Some(id) = subscribed_task(path).filter(|_| may_subscribe) {
        let request = SubscribeToTaskRequest { id, tenant: None };
        let events = service
            .subscribe_numbered(&params_of(headers), request)
            .await;
        return Some(rest_answer(events, revoked()));
    }
    if request.method() != Method::POST {
        return None;
    }
    if path.ends_with("/message:stream") || path.ends_with("/message/stream") {
        if !is_json(headers) {
            return Some(rest::error_response(&A2AError::content_type_not_supported()));
        }
        let body = serde_json::from_slice(request.body()).ok()?;
        let events = match protojson_conv::from_value::<SendMessageRequest>(body) {
            Ok(request) => service.send_numbered(&params_of(headers), request).await,
            Err(error) => Err(invalid(&error)),
        };
        return Some(rest_answer(events, revoked()));
    }
    if path != "/" {
        return None;
    }
    if !is_json(headers) {
        let error = A2AError::content_type_not_supported();
        return Some(jsonrpc::error_response(JsonRpcId::Null, &error));
    }
    let head = RequestHead::of(request.body())?;
    let is_list = head.method == methods::LIST_TASKS;
    let is_answered = head.jsonrpc == "2.0" && (is_list || methods::is_streaming(&head.method));
    if !is_answered {
        return None;
    }
    let request = serde_json::from_slice(request.body()).ok()?;
    let params = params_of(headers);
    Some(if is_list {
        listing::jsonrpc_answer(service, &params, request).await
    } else {
        jsonrpc_answer(service, &params, request, revoked()).await
    })
}

/// Returns the task id in `/tasks/{id}:subscribe`.
fn subscribed_task(path: &str) -> Option<String> {
    let (_, task) = path.rsplit_once("/tasks/")?;
    let id = task
        .strip_suffix(":subscribe")
        .or_else(|| task.strip_suffix("/subscribe"))?;
    Some(id.to_owned())
}

/// True if the headers name JSON as the type of the body. A request without a type is refused, because a web page can
/// send such a request to a server on this machine without the consent of the server.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    content_type.is_some_and(|content_type| {
        let content_type = content_type.split(';').next().unwrap_or_default().trim();
        content_type == "application/json" || content_type.ends_with("+json")
    })
}

async fn jsonrpc_answer(
    service: &A2aService,
    params: &ServiceParams,
    request: JsonRpcRequest,
    revoked: BoxFuture<'static, ()>,
) -> Response {
    let id = request.id;
    let body = request.params.unwrap_or(Value::Null);
    let events = if request.method == methods::SUBSCRIBE_TO_TASK {
        match protojson_conv::from_value::<SubscribeToTaskRequest>(body) {
            Ok(request) => service.subscribe_numbered(params, request).await,
            Err(error) => Err(invalid(&error)),
        }
    } else {
        match protojson_conv::from_value::<SendMessageRequest>(body) {
            Ok(request) => service.send_numbered(params, request).await,
            Err(error) => Err(invalid(&error)),
        }
    };
    match events {
        Ok(events) => sse(until_revoked(events, revoked), EventForm::JsonRpc(id)),
        // An error before the first event is a usual response: the conformance tests of version 1.0 expect it.
        Err(error) => jsonrpc::error_response(id, &error),
    }
}

fn rest_answer(
    events: Result<BoxStream<'static, NumberedEvent>, A2AError>,
    revoked: BoxFuture<'static, ()>,
) -> Response {
    match events {
        Ok(events) => sse(until_revoked(events, revoked), EventForm::HttpJson),
        Err(error) => rest::error_response(&error),
    }
}

/// Converts headers to the form in which the library passes them to a handler.
pub(crate) fn params_of(headers: &HeaderMap) -> ServiceParams {
    let mut params = ServiceParams::new();
    for (name, value) in headers {
        if let Ok(value) = value.to_str() {
            let values = params.entry(name.as_str().to_owned()).or_default();
            values.push(value.to_owned());
        }
    }
    params
}

/// Form of the events of a stream.
pub(crate) enum EventForm {
    /// Events of HTTP+JSON, without envelopes.
    HttpJson,
    /// Envelopes of JSON-RPC with the id of the request.
    JsonRpc(JsonRpcId),
    /// Like [`JsonRpc`](Self::JsonRpc), for clients of version 0.3.
    JsonRpcV03(JsonRpcId),
}

impl EventForm {
    /// Id of the request; `None` without envelopes.
    fn id(&self) -> Option<&JsonRpcId> {
        match self {
            Self::HttpJson => None,
            Self::JsonRpc(id) | Self::JsonRpcV03(id) => Some(id),
        }
    }

    fn payload(&self, event: StreamResponse) -> Result<Value, A2AError> {
        match self {
            Self::HttpJson | Self::JsonRpc(_) => protojson_conv::to_value(&event)
                .map_err(|error| A2AError::internal(error.to_string())),
            Self::JsonRpcV03(_) => event::event(event),
        }
    }
}

/// Returns the events as a response.
pub(crate) fn sse(events: BoxStream<'static, NumberedEvent>, form: EventForm) -> Response {
    let is_v0_3 = matches!(form, EventForm::JsonRpcV03(_));
    let events = events.map(move |event| Ok::<_, Infallible>(sse_event(event, &form)));
    let response = Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response();
    if is_v0_3 {
        comments::with_bare_comments(response)
    } else {
        response
    }
}

fn sse_event(event: NumberedEvent, form: &EventForm) -> Event {
    let value = event.and_then(|(number, event)| Ok((number, form.payload(event)?)));
    match (value, form.id()) {
        (Ok((number, value)), Some(id)) => {
            let envelope = JsonRpcResponse::success(id.clone(), value);
            with_number(number).data(json(&envelope))
        }
        (Ok((number, value)), None) => with_number(number).data(json(&value)),
        (Err(error), Some(id)) => {
            let envelope = jsonrpc::error(id.clone(), &error);
            Event::default().data(json(&envelope))
        }
        // Without a JSON-RPC envelope, only the event type distinguishes an error from other events.
        (Err(error), None) => Event::default()
            .event("error")
            .data(json(&rest::error_body(&error))),
    }
}

/// An event with its number as the id. Without an id, clients keep the id of the previous event.
fn with_number(number: Option<Version>) -> Event {
    match number {
        Some(number) => Event::default().id(number.to_string()),
        None => Event::default(),
    }
}

/// Characters that end a line in Unicode, but not in an event stream. Some clients, including the official Python
/// client, still split the stream at these characters.
const LINE_ENDS: [(char, &str); 3] = [
    ('\u{85}', "\\u0085"),
    ('\u{2028}', "\\u2028"),
    ('\u{2029}', "\\u2029"),
];

/// Serialises JSON on one line, without any character that a client treats as a line end.
fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    for (end, escaped) in LINE_ENDS {
        if text.contains(end) {
            text = text.replace(end, escaped);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream;

    use super::*;

    async fn text_of(events: Vec<NumberedEvent>, form: EventForm) -> String {
        let response = sse(stream::iter(events).boxed(), form);
        let bytes = to_bytes(response.into_body(), 10_000).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn text_of_an_event_has_no_line_end_of_any_kind() {
        let text = "a\u{85}b\u{2028}c\u{2029}d\r\n\u{b}\u{c}\u{1c}\u{1d}\u{1e}e";
        let json = json(&text);
        assert!(
            !json.contains(|c: char| c.is_control() || ['\u{2028}', '\u{2029}'].contains(&c)),
            "{json:?}"
        );
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    /// The official clients parse an event without a type as a `StreamResponse`, and ignore unknown fields. They would
    /// therefore not detect an error without a type.
    #[tokio::test]
    async fn error_in_a_rest_stream_has_its_type() {
        let error = || vec![Err(A2AError::task_not_found("t"))];
        let text = text_of(error(), EventForm::HttpJson).await;
        let data = text.strip_prefix("event: error\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data.trim()).unwrap();
        assert_eq!(data["error"]["code"], 404);
        assert_eq!(data["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
        let text = text_of(error(), EventForm::JsonRpc(JsonRpcId::Number(1))).await;
        let data: Value = serde_json::from_str(text.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(
            (&data["id"], &data["error"]["code"]),
            (&1.into(), &(-32001).into())
        );
    }
}
