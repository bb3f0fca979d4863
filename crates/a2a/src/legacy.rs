//! Responses to clients of version 0.3 of A2A.
//!
//! Version 0.3 has separate paths for HTTP+JSON and gRPC. On these paths, the server responds with an error that
//! clients of version 0.3 understand. The clients then report a wrong version instead of an invalid response.

use a2a::A2AError;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::json;

use crate::version;

/// Version that has these paths.
pub(crate) const VERSION: &str = "0.3";

/// Name of the error in version 0.3.
pub(crate) const ERROR_TYPE: &str = "VersionNotSupportedError";

/// HTTP+JSON of version 0.3.
pub(crate) fn http_router() -> Router {
    Router::new().route("/v1/{*path}", any(refuse_http))
}

async fn refuse_http(request: Request) -> Response {
    if version::check(request.headers()).is_ok() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let error = A2AError::version_not_supported(VERSION);
    let body = json!({"type": ERROR_TYPE, "code": error.code, "message": error.message});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
