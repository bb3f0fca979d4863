//! The parts of the HTTP+JSON binding in which the library differs from the specification.

use a2a::A2AError;
use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::version;

/// Checks the version of REST requests, names their answers `application/json` (A2A 1.0, sections 11.1 and 11.6), and
/// gives the answer to a deletion a body: the empty message, which is an object without fields in JSON.
pub(crate) async fn conform(request: Request, next: Next) -> Response {
    if request.uri().path() == "/" {
        return next.run(request).await; // JSON-RPC
    }
    if let Err(error) = version::check(request.headers()) {
        return error_response(&error);
    }
    let is_deletion = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    let is_empty = response.body().size_hint().exact() == Some(0);
    if is_deletion && is_empty && response.status() == StatusCode::OK {
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

/// An error as a `google.rpc.Status` in JSON.
pub(crate) fn error_response(error: &A2AError) -> Response {
    (http_status(error), axum::Json(error_body(error))).into_response()
}

/// Body of an error; in a stream, the data of its last event.
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

/// The word of `google.rpc.Code` for a status.
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
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware::from_fn;
    use axum::routing::delete;
    use tower::ServiceExt as _;

    use super::*;

    /// The official Python client reads the answer as JSON.
    #[tokio::test]
    async fn deletion_is_answered_with_the_empty_message() {
        let router = Router::new()
            .route("/deleted", delete(async || StatusCode::OK))
            .route("/missing", delete(async || StatusCode::NOT_FOUND))
            .layer(from_fn(conform));
        for (path, expected) in [("/deleted", "{}"), ("/missing", "")] {
            let request = Request::delete(path)
                .header("a2a-version", "1.0")
                .body(Body::empty());
            let response = router.clone().oneshot(request.unwrap()).await.unwrap();
            let body = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(body, expected, "{path}");
        }
    }
}
