//! Checks of a request over gRPC before the library processes it.

use a2a::A2AError;
use a2a_grpc::errors::a2a_error_to_status;
use a2a_pb::proto::ListTasksRequest;
use a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;
use allstop_core::json_text::has_reserved_words;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use prost::Message as _;
use tonic::Status;

use crate::limits::{BodyRefusal, RESERVED_KEY, WholeRequest, read_whole, too_large};
use crate::listing::check_page_size;

/// Size in bytes of the prefix of a gRPC message: a flag, and the length.
const PREFIX_BYTES: usize = 5;

/// Reads the whole message before the request is processed. The request of an operation consists of exactly one
/// message.
pub(super) async fn read(request: Request, next: Next) -> Response {
    let read = read_whole(request, MAX_REQUEST_BODY_BYTES + PREFIX_BYTES).await;
    match read {
        // Keys in the data of a message become JSON keys in the log, so keys that the JSON library reserves are
        // refused. The format of gRPC messages does not escape keys, so a search in the bytes finds every reserved key.
        // Ordinary text that contains a reserved key is refused, too.
        Ok(request) if has_reserved_words(request.body()) => {
            Status::invalid_argument(RESERVED_KEY).into_http()
        }
        Ok(request) => match check_list(&request) {
            Ok(()) => next.run(request.map(Body::from)).await,
            Err(error) => a2a_error_to_status(&error).into_http(),
        },
        Err(BodyRefusal::TooLarge) => Status::resource_exhausted(too_large()).into_http(),
        Err(BodyRefusal::TooSlow) => {
            Status::deadline_exceeded("the message did not come in time").into_http()
        }
        Err(BodyRefusal::ReservedKey) => Status::invalid_argument(RESERVED_KEY).into_http(),
    }
}

/// Checks the page size of a `ListTasks`. The library would replace a page size below 1 by the default. A message that
/// cannot be decoded passes, because the library describes the error to the client.
fn check_list(request: &WholeRequest) -> Result<(), A2AError> {
    if !request.uri().path().ends_with("/ListTasks") {
        return Ok(());
    }
    let message = request.body().get(PREFIX_BYTES..).unwrap_or_default();
    let list = ListTasksRequest::decode(message).ok();
    let page_size = list.and_then(|list| list.page_size);
    page_size.map_or(Ok(()), |size| check_page_size(size.into()))
}
