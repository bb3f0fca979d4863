//! Messages of a client over HTTP that are no JSON-RPC messages.
//!
//! The MCP library answers broken JSON as an unsupported media type, and takes a request with a wrong id for a
//! notification, which gets no answer.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::TxJsonRpcMessage;

use crate::incoming::{MESSAGE_BYTES_MAX, parse};

/// Answers a wrong message with an error of JSON-RPC and the status 400 (MCP 2025-11-25, section "Sending Messages to
/// the Server"). Passes all other messages on.
pub(crate) async fn refuse_wrong_messages(request: Request, next: Next) -> Response {
    // The library refuses other methods and media types. It reads no body of them.
    if request.method() != Method::POST || !is_json(request.headers()) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MESSAGE_BYTES_MAX).await else {
        let reason =
            format!("the body must be sent whole and have at most {MESSAGE_BYTES_MAX} bytes");
        return (StatusCode::PAYLOAD_TOO_LARGE, reason).into_response();
    };
    match refusal(&body) {
        Some(refusal) => refusal,
        None => next.run(Request::from_parts(parts, Body::from(body))).await,
    }
}

/// The answer to a body that is no message.
fn refusal(body: &Bytes) -> Option<Response> {
    if body.trim_ascii().is_empty() {
        let empty = ErrorData::parse_error("the body is empty", None);
        return Some(answered(TxJsonRpcMessage::<RoleServer>::error(empty, None)));
    }
    let wrong = parse(body).err()?;
    Some(answered(wrong.into_answer()))
}

fn answered(answer: TxJsonRpcMessage<RoleServer>) -> Response {
    (StatusCode::BAD_REQUEST, axum::Json(answer)).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next());
    media_type.is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"))
}
