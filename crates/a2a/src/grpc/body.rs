//! Limits of a request over gRPC.

use a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;
use allstop_core::json_text::has_reserved_words;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tonic::Status;

use crate::limits::{BodyRefusal, RESERVED_KEY, read_whole, too_large};

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
        Ok(request) => next.run(request.map(Body::from)).await,
        Err(BodyRefusal::TooLarge) => Status::resource_exhausted(too_large()).into_http(),
        Err(BodyRefusal::TooSlow) => {
            Status::deadline_exceeded("the message did not come in time").into_http()
        }
        Err(BodyRefusal::ReservedKey) => Status::invalid_argument(RESERVED_KEY).into_http(),
    }
}
