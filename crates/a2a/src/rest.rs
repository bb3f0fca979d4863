//! Corrections of the HTTP+JSON binding where the A2A library deviates from the specification.

use a2a::{A2AError, error_code};
use axum::body::{HttpBody as _, to_bytes};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::overload::{Overload, set_reasons};
use crate::{errors, listing};

/// Media type of A2A messages (A2A 1.0.1, section 11.1).
const A2A_JSON: &str = "application/a2a+json";

/// Returns the media type of the response to a request. A2A 1.0.1 prefers [`A2A_JSON`], and 1.0.0 requires
/// `application/json`, so a client gets the newer type only if its request names this type.
pub(crate) fn media_type_for(request: &HeaderMap) -> HeaderValue {
    let mut named = [ACCEPT, CONTENT_TYPE]
        .iter()
        .flat_map(|header| request.get_all(header));
    let is_newer = named.any(|value| value.to_str().is_ok_and(|value| value.contains(A2A_JSON)));
    HeaderValue::from_static(if is_newer {
        A2A_JSON
    } else {
        "application/json"
    })
}

/// Sets the media type of a response with JSON, and adds a body to the response of a deletion. The body is the empty
/// message, which is an object without fields in JSON.
///
/// An error of a server that takes no more work gets its status and the header `Retry-After`.
pub(crate) async fn conform(
    method: &Method,
    media_type: HeaderValue,
    mut response: Response,
) -> Response {
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR && is_json(response.headers()) {
        response = with_status_of_overload(response).await;
    }
    let is_empty = response.body().size_hint().exact() == Some(0);
    if method == Method::DELETE && is_empty && response.status() == StatusCode::OK {
        response = axum::Json(json!({})).into_response();
    }
    if response.status().is_client_error() && is_text(response.headers()) {
        response = with_error_object(response).await;
    }
    if is_json(response.headers()) {
        response.headers_mut().insert(CONTENT_TYPE, media_type);
    }
    response
}

/// Maximum size of the body of a page without tasks, in bytes: four short fields.
const EMPTY_PAGE_BYTES_MAX: u64 = 4 * 1024;

/// Adds the fields that the library omits in a page without tasks. A page with tasks is long and complete.
pub(crate) async fn complete_page(response: Response) -> Response {
    let len = response.body().size_hint().exact();
    if response.status() != StatusCode::OK || len.is_none_or(|len| len > EMPTY_PAGE_BYTES_MAX) {
        return response;
    }
    let Ok(body) = to_bytes(response.into_body(), ERROR_BYTES_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut page: Value = serde_json::from_slice(&body).unwrap_or_default();
    listing::complete(&mut page);
    axum::Json(page).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    content_type.is_some_and(|content_type| content_type.contains("json"))
}

fn is_text(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    content_type.is_some_and(|content_type| content_type.starts_with("text/plain"))
}

/// Replaces the text with which the library refuses a body or a query, so that all errors have one form.
async fn with_error_object(response: Response) -> Response {
    let status = response.status();
    let text = to_bytes(response.into_body(), ERROR_BYTES_MAX).await;
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    error_response(&match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => A2AError::content_type_not_supported(),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            A2AError::invalid_params(text)
        }
        _ => return (status, text).into_response(),
    })
}

/// Maximum size of the body of an error, in bytes.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Sets the status of an error whose details name an overload. The library knows only the status 500.
async fn with_status_of_overload(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, ERROR_BYTES_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let error: Value = serde_json::from_slice(&body).unwrap_or_default();
    let details = error["error"]["details"].as_array();
    let overload = details
        .into_iter()
        .flatten()
        .find_map(|detail| Overload::of_metadata(|key| detail["metadata"][key].as_str()));
    let Some(overload) = overload else {
        return Response::from_parts(parts, body.into());
    };
    let mut error = error;
    error["error"]["code"] = overload.http_status().as_u16().into();
    error["error"]["status"] = overload.word().into();
    set_reasons(&mut error["error"]["details"]);
    let mut response = (overload.http_status(), axum::Json(error)).into_response();
    overload.add_header(response.headers_mut());
    response
}

/// Returns an error as a `google.rpc.Status` in JSON.
pub(crate) fn error_response(error: &A2AError) -> Response {
    let mut response = (http_status(error), axum::Json(error_body(error))).into_response();
    if let Some(overload) = Overload::of_error(error) {
        overload.add_header(response.headers_mut());
    }
    response
}

/// Returns the body of an error. In a stream, this body is the data of the last event.
pub(crate) fn error_body(error: &A2AError) -> Value {
    let status = http_status(error);
    let mut rpc = error.to_jsonrpc_error();
    rpc.data.iter_mut().for_each(set_reasons);
    json!({"error": {
        "code": status.as_u16(),
        "status": status_word(error.code, status),
        "message": rpc.message,
        "details": rpc.data,
    }})
}

fn http_status(error: &A2AError) -> StatusCode {
    if let Some(overload) = Overload::of_error(error) {
        return overload.http_status();
    }
    if error.code == errors::REVOKED {
        return StatusCode::UNAUTHORIZED;
    }
    let status = StatusCode::from_u16(error.http_status_code());
    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns the name of an error in `google.rpc.Code` (A2A 1.0.1, section 5.4).
fn status_word(code: i32, status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST if is_precondition(code) => "FAILED_PRECONDITION",
        StatusCode::UNAUTHORIZED => errors::REVOKED_WORD,
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::CONFLICT => "FAILED_PRECONDITION",
        StatusCode::NOT_IMPLEMENTED => "UNIMPLEMENTED",
        StatusCode::TOO_MANY_REQUESTS => Overload::Full.word(),
        StatusCode::SERVICE_UNAVAILABLE => Overload::Unavailable.word(),
        status if status.is_client_error() => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

fn is_precondition(code: i32) -> bool {
    matches!(
        code,
        error_code::TASK_NOT_CANCELABLE
            | error_code::PUSH_NOTIFICATION_NOT_SUPPORTED
            | error_code::UNSUPPORTED_OPERATION
            | error_code::EXTENDED_CARD_NOT_CONFIGURED
            | error_code::EXTENSION_SUPPORT_REQUIRED
            | error_code::VERSION_NOT_SUPPORTED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The official Python client parses the response as JSON.
    #[tokio::test]
    async fn deletion_is_answered_with_the_empty_message() {
        for (status, expected) in [(StatusCode::OK, "{}"), (StatusCode::NOT_FOUND, "")] {
            let json = HeaderValue::from_static("application/json");
            let response = conform(&Method::DELETE, json, status.into_response()).await;
            let body = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(body, expected, "{status}");
        }
    }
}
