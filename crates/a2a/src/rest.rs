//! Corrections of the HTTP+JSON binding where the A2A library deviates from the specification.

use a2a::A2AError;
use axum::body::HttpBody as _;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// Sets the content type of a response to `application/json` (A2A 1.0, section 11.1), and adds a body to the response
/// of a deletion. The body is the empty message, which is an object without fields in JSON.
pub(crate) fn conform(method: &Method, mut response: Response) -> Response {
    let is_empty = response.body().size_hint().exact() == Some(0);
    if method == Method::DELETE && is_empty && response.status() == StatusCode::OK {
        return axum::Json(json!({})).into_response();
    }
    if is_json(response.headers()) {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
    }
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    content_type.is_some_and(|content_type| content_type.contains("+json"))
}

/// Returns an error as a `google.rpc.Status` in JSON.
pub(crate) fn error_response(error: &A2AError) -> Response {
    (http_status(error), axum::Json(error_body(error))).into_response()
}

/// Returns the body of an error. In a stream, this body is the data of the last event.
pub(crate) fn error_body(error: &A2AError) -> Value {
    let status = http_status(error);
    let rpc = error.to_jsonrpc_error();
    json!({"error": {
        "code": status.as_u16(),
        "status": status_word(status),
        "message": rpc.message,
        "details": rpc.data,
    }})
}

fn http_status(error: &A2AError) -> StatusCode {
    let status = StatusCode::from_u16(error.http_status_code());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns the name of a status in `google.rpc.Code`.
fn status_word(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::CONFLICT => "FAILED_PRECONDITION",
        StatusCode::NOT_IMPLEMENTED => "UNIMPLEMENTED",
        status if status.is_client_error() => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    /// The official Python client parses the response as JSON.
    #[tokio::test]
    async fn deletion_is_answered_with_the_empty_message() {
        for (status, expected) in [(StatusCode::OK, "{}"), (StatusCode::NOT_FOUND, "")] {
            let response = conform(&Method::DELETE, status.into_response());
            let body = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(body, expected, "{status}");
        }
    }
}
