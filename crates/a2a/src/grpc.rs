//! The gRPC binding.

use std::sync::Arc;

use a2a::{error_code, reason_to_error_code};
use a2a_grpc::{GrpcHandler, errors::a2a_error_to_status};
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use axum::extract::Request as HttpRequest;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use crate::legacy;
use crate::principal::{Authenticator, authenticate};
use crate::service::A2aService;
use crate::version;

/// Most bytes of a gRPC message, as for the other bindings.
const MESSAGE_BYTES_MAX: usize = a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;

/// The operations over gRPC, for a server of its own or beside the other bindings.
pub fn grpc_router(
    service: &Arc<A2aService>,
    authenticator: Arc<dyn Authenticator>,
) -> axum::Router {
    let server = A2aServiceServer::new(GrpcHandler::new(Arc::clone(service)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let admit = move |mut request: Request<()>| {
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        authenticate(&*authenticator, &mut headers)
            .map_err(|_| Status::unauthenticated("authentication is required"))?;
        version::check(&headers).map_err(|error| a2a_error_to_status(&error))?;
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
        Ok(request)
    };
    Routes::new(InterceptedService::new(server, admit))
        .into_axum_router()
        .layer(from_fn(specified_status))
        .merge(legacy::grpc_router())
        .fallback(legacy::unknown)
}

/// Gives errors the status of A2A 1.0, section 5.4, where the library has another one.
async fn specified_status(request: HttpRequest, next: Next) -> Response {
    let mut response = next.run(request).await;
    let status = Status::from_header_map(response.headers());
    if let Some(status) = status.as_ref().and_then(unimplemented)
        && status.add_header(response.headers_mut()).is_err()
    {
        tracing::debug!("a status cannot be sent as headers");
    }
    response
}

/// The same status with the code `Unimplemented`, if its error has that code. The details repeat the code, and clients
/// reject a status whose details have another one.
fn unimplemented(status: &Status) -> Option<Status> {
    let details = status.get_error_details();
    let code = reason_to_error_code(&details.error_info()?.reason)?;
    is_unimplemented(code)
        .then(|| Status::with_error_details(Code::Unimplemented, status.message(), details))
}

fn is_unimplemented(code: i32) -> bool {
    matches!(
        code,
        error_code::PUSH_NOTIFICATION_NOT_SUPPORTED
            | error_code::UNSUPPORTED_OPERATION
            | error_code::VERSION_NOT_SUPPORTED
    )
}
