//! The gRPC binding.

use std::sync::Arc;

use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use tonic::service::{Routes, interceptor::InterceptedService};
use tonic::{Request, Status};

use crate::principal::{Authenticator, authenticate};
use crate::service::A2aService;

/// Most bytes of a gRPC message, as for the other bindings.
const MESSAGE_BYTES_MAX: usize = a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;

/// The operations over gRPC, for a server of its own or beside the other bindings.
pub fn grpc_router(
    service: &Arc<A2aService>,
    authenticator: Arc<dyn Authenticator>,
) -> axum::Router {
    let server = A2aServiceServer::new(GrpcHandler::new(Arc::clone(service)))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let authenticated = move |mut request: Request<()>| {
        let mut headers = std::mem::take(request.metadata_mut()).into_headers();
        authenticate(&*authenticator, &mut headers)
            .map_err(|_| Status::unauthenticated("authentication is required"))?;
        *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(headers);
        Ok(request)
    };
    Routes::new(InterceptedService::new(server, authenticated)).into_axum_router()
}
