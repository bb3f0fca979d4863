//! The gRPC binding.

mod body;
mod legacy;
mod revocable;

use std::sync::Arc;
use std::time::Instant;

use a2a::{error_code, reason_to_error_code};
use a2a_grpc::{GrpcHandler, errors::a2a_error_to_status};
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::access::{AccessControl, AccessRefusal};
use crate::connection_activity::prove_connection;
use crate::overload::Overload;
use crate::router::add_authority;
use crate::service::A2aService;
use crate::version;

/// Maximum size of a gRPC message in bytes, as in the other bindings.
const MESSAGE_BYTES_MAX: usize = a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;

/// The operations over gRPC, for a separate server or for a port shared with the other bindings.
pub fn grpc_router(service: &Arc<A2aService>, access: AccessControl) -> axum::Router {
    let server = A2aServiceServer::new(GrpcHandler::new(Arc::clone(service)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    Routes::new(server)
        .into_axum_router()
        .layer(from_fn(specified_status))
        // A route layer does not apply to unknown paths. On a port that all bindings share, such a path may belong to
        // another binding.
        .route_layer(from_fn(body::read))
        .route_layer(from_fn_with_state((Arc::clone(service), access), admission))
        .merge(legacy::router())
        .fallback(legacy::unknown)
}

/// Admits a call before its message is read.
async fn admission(
    State((service, access)): State<(Arc<A2aService>, AccessControl)>,
    mut request: Request,
    next: Next,
) -> Response {
    add_authority(&mut request);
    if let Err(refusal) = access.admit(request.headers_mut(), Instant::now()) {
        let status = match refusal {
            AccessRefusal::Unauthenticated(_) => Status::unauthenticated(refusal.to_string()),
            AccessRefusal::TooManyRequests { .. } => {
                Status::resource_exhausted(refusal.to_string())
            }
        };
        let mut response: Response = status.into_http();
        let (name, value) = refusal.header();
        response.headers_mut().insert(name, value);
        return response;
    }
    prove_connection(&request);
    if let Err(error) = version::check(request.headers()) {
        return with_specified_status(a2a_error_to_status(&error).into_http());
    }
    let revoked = access.revoked(request.headers());
    let built = service.memory.begin(request.headers_mut());
    let response = built.hand_over(next.run(request).await);
    revocable::until_revoked(response, revoked)
}

/// Replaces the status of an error by the status from A2A 1.0, section 5.4, if the library uses a different status.
async fn specified_status(request: Request, next: Next) -> Response {
    with_specified_status(next.run(request).await)
}

fn with_specified_status(mut response: Response) -> Response {
    specify_status(response.headers_mut());
    response
}

/// Replaces the status in the head or in the trailers of a response. Adds `retry-after` if the server takes no more work.
fn specify_status(headers: &mut HeaderMap) {
    let Some(status) = Status::from_header_map(headers) else {
        return;
    };
    let overload = overload_of(&status);
    let specified = match overload {
        Some(overload) => Some(of_overload(&status, overload)),
        None => unimplemented(&status),
    };
    if let Some(specified) = specified
        && specified.add_header(headers).is_err()
    {
        tracing::debug!("a status cannot be sent as headers");
    }
    if let Some(overload) = overload {
        overload.add_header(headers);
    }
}

/// If the error requires the code `Unimplemented`, returns the status with this code. The details repeat the code,
/// because clients reject a status whose details contain a different code.
fn unimplemented(status: &Status) -> Option<Status> {
    let details = status.get_error_details();
    let code = reason_to_error_code(&details.error_info()?.reason)?;
    is_unimplemented(code)
        .then(|| Status::with_error_details(Code::Unimplemented, status.message(), details))
}

/// The status of this overload, with the reason that the library has replaced.
fn of_overload(status: &Status, overload: Overload) -> Status {
    let code = match overload {
        Overload::Full => Code::ResourceExhausted,
        Overload::Unavailable => Code::Unavailable,
    };
    with_condition(status, code, overload.word())
}

/// The status with this code and this reason.
fn with_condition(status: &Status, code: Code, word: &str) -> Status {
    let mut details = status.get_error_details();
    if let Some(info) = details.error_info().cloned() {
        details.set_error_info(word, info.domain, info.metadata);
    }
    Status::with_error_details(code, status.message(), details)
}

/// The condition of a server that takes no more work, from the details of the status.
fn overload_of(status: &Status) -> Option<Overload> {
    let details = status.get_error_details();
    let metadata = &details.error_info()?.metadata;
    Overload::of_metadata(|key| metadata.get(key).map(String::as_str))
}

fn is_unimplemented(code: i32) -> bool {
    matches!(
        code,
        error_code::PUSH_NOTIFICATION_NOT_SUPPORTED
            | error_code::UNSUPPORTED_OPERATION
            | error_code::VERSION_NOT_SUPPORTED
    )
}
