//! Answers to clients of version 0.3 and to unknown paths.
//!
//! Version 0.3 has paths of its own for HTTP+JSON and gRPC. The answer there is an error that clients of that version
//! understand, so that they report a wrong version instead of a broken answer.

use a2a::A2AError;
use a2a_grpc::errors::a2a_error_to_status;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::version;

/// Version with these paths.
const VERSION: &str = "0.3";

/// Name of the error in version 0.3.
const ERROR_TYPE: &str = "VersionNotSupportedError";

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

/// gRPC of version 0.3.
pub(crate) fn grpc_router() -> Router {
    Router::new().route("/a2a.v1.A2AService/{method}", any(refuse_grpc))
}

async fn refuse_grpc() -> Response {
    let status = a2a_error_to_status(&A2AError::version_not_supported(VERSION));
    let message = format!("{ERROR_TYPE}: {}", status.message());
    let details = status.get_error_details();
    Status::with_error_details(Code::Unimplemented, message, details).into_http::<Body>()
}

/// Answer to an unknown path, in the protocol of the request.
pub(crate) async fn unknown(request: Request) -> Response {
    let content_type = request.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| value.starts_with("application/grpc")) {
        let message = format!("unknown method {}", request.uri().path());
        return Status::unimplemented(message).into_http::<Body>();
    }
    StatusCode::NOT_FOUND.into_response()
}
