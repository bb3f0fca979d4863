//! Responses to clients of version 0.3 of A2A over HTTP+JSON and gRPC. This server has version 0.3 only over JSON-RPC.
//!
//! Version 0.3 has separate paths for HTTP+JSON and gRPC. On these paths, the server responds with an error that
//! clients of version 0.3 understand. The clients then report a wrong version instead of an invalid response.

use a2a::error_code;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::json;

use crate::version;

/// Message of the error.
pub(crate) const MESSAGE: &str =
    "version not supported: 0.3 over this binding; version 0.3 is available over JSON-RPC";

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
    let code = error_code::VERSION_NOT_SUPPORTED;
    let body = json!({"type": ERROR_TYPE, "code": code, "message": MESSAGE});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}
