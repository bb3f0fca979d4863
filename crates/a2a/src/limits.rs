//! Limits of a request: the size of its body, and the time in which a client must send it.

use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;
use allstop_core::json_text::has_reserved_key;

use crate::integral_floats::{with_integers, with_integers_in_query};

/// Maximum time for a body. The largest permitted body needs 350 kB/s, which every client can send. A client that sends
/// a byte per second to keep a connection open is disconnected.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

pub(crate) const RESERVED_KEY: &str =
    "an object has a key that is reserved: it begins with `$serde_json::private::`";

/// Request with a completely read body.
pub(crate) type WholeRequest = axum::http::Request<Bytes>;

/// Reason why a body is refused.
pub(crate) enum BodyRefusal {
    TooLarge,
    TooSlow,
    /// The body contains an object key that the JSON library reserves for a special meaning.
    ReservedKey,
}

pub(crate) async fn read_whole(
    request: Request,
    bytes_max: usize,
) -> Result<WholeRequest, BodyRefusal> {
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, bytes_max)).await {
        Ok(Ok(bytes)) => Ok(WholeRequest::from_parts(parts, bytes)),
        Ok(Err(_)) => Err(BodyRefusal::TooLarge),
        Err(_elapsed) => Err(BodyRefusal::TooSlow),
    }
}

pub(crate) fn too_large() -> String {
    format!("the body must be sent whole and have at most {MAX_REQUEST_BODY_BYTES} bytes")
}

/// Reads the whole body before the request is processed. Integer fields of the body and of the query are in the form that
/// the library accepts.
pub(crate) async fn read_body(request: Request) -> Result<WholeRequest, BodyRefusal> {
    let request = read_whole(request, MAX_REQUEST_BODY_BYTES).await?;
    if has_reserved_key(request.body()) {
        return Err(BodyRefusal::ReservedKey);
    }
    let mut request = request.map(with_integers);
    with_integers_in_query(request.uri_mut());
    Ok(request)
}

impl IntoResponse for BodyRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, too_large()).into_response(),
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT.into_response(),
            Self::ReservedKey => (StatusCode::BAD_REQUEST, RESERVED_KEY).into_response(),
        }
    }
}
