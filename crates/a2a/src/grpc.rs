//! The gRPC binding.

use std::sync::Arc;
use std::time::Instant;

use a2a::{error_code, reason_to_error_code};
use a2a_grpc::{GrpcHandler, errors::a2a_error_to_status};
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use axum::extract::Request;
use axum::extract::State;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::access::{AccessControl, AccessRefusal};
use crate::service::A2aService;
use crate::{limits, version};

/// Most bytes of a gRPC message, as for the other bindings.
const MESSAGE_BYTES_MAX: usize = a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;

/// Header with the status of a call that failed before its first message.
const GRPC_STATUS: &str = "grpc-status";

/// The operations over gRPC, for a server of its own or beside the other bindings.
pub fn grpc_router(service: &Arc<A2aService>, access: AccessControl) -> axum::Router {
    let server = A2aServiceServer::new(GrpcHandler::new(Arc::clone(service)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    Routes::new(server)
        .into_axum_router()
        .layer(from_fn(specified_status))
        // Not for unknown paths: on a shared port their answer is that of all bindings.
        .route_layer(from_fn(limits::read_grpc_body))
        .route_layer(from_fn_with_state(access, admission))
}

/// Admits a call before its message is read.
async fn admission(
    State(access): State<AccessControl>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(refusal) = access.admit(request.headers_mut(), Instant::now()) {
        let status = match refusal {
            AccessRefusal::Unauthenticated => Status::unauthenticated(refusal.to_string()),
            AccessRefusal::TooManyRequests { .. } => {
                Status::resource_exhausted(refusal.to_string())
            }
        };
        let mut response: Response = status.into_http();
        let (name, value) = refusal.header();
        response.headers_mut().insert(name, value);
        return response;
    }
    if let Err(error) = version::check(request.headers()) {
        return with_specified_status(a2a_error_to_status(&error).into_http());
    }
    next.run(request).await
}

/// Gives errors the status of A2A 1.0, section 5.4, where the library has another one.
async fn specified_status(request: Request, next: Next) -> Response {
    with_specified_status(next.run(request).await)
}

fn with_specified_status(mut response: Response) -> Response {
    let unimplemented = Status::from_header_map(response.headers())
        .and_then(|status| status.get_details_error_info())
        .and_then(|info| reason_to_error_code(&info.reason))
        .is_some_and(is_unimplemented);
    if unimplemented {
        let code = Code::Unimplemented as i32;
        response.headers_mut().insert(GRPC_STATUS, code.into());
    }
    response
}

fn is_unimplemented(code: i32) -> bool {
    matches!(
        code,
        error_code::PUSH_NOTIFICATION_NOT_SUPPORTED
            | error_code::UNSUPPORTED_OPERATION
            | error_code::VERSION_NOT_SUPPORTED
    )
}
