//! Responses to gRPC clients of version 0.3 and to unknown paths.

use a2a::{A2AError, error_code};
use a2a_grpc::errors::a2a_error_to_status;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::legacy::{ERROR_TYPE, MESSAGE};

/// gRPC of version 0.3.
pub(super) fn router() -> Router {
    Router::new().route("/a2a.v1.A2AService/{method}", any(refuse))
}

async fn refuse() -> Response {
    let error = A2AError::new(error_code::VERSION_NOT_SUPPORTED, MESSAGE);
    let status = a2a_error_to_status(&error);
    let message = format!("{ERROR_TYPE}: {}", status.message());
    let details = status.get_error_details();
    Status::with_error_details(Code::Unimplemented, message, details).into_http::<Body>()
}

/// Responds to an unknown path, in the protocol of the request.
pub(super) async fn unknown(request: Request) -> Response {
    let content_type = request.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| value.starts_with("application/grpc")) {
        let message = format!("unknown method {}", request.uri().path());
        return Status::unimplemented(message).into_http::<Body>();
    }
    StatusCode::NOT_FOUND.into_response()
}
