//! Limits of a request: bytes of its body, and the time that a client may take to send it.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;

/// Longest time for a body. The largest body needs 350 kB/s, which any client has; one that sends a byte a second to
/// hold a connection open is cut off.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Reads the whole body before anything looks at the request.
pub(crate) async fn read_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, MAX_REQUEST_BODY_BYTES)).await {
        Ok(Ok(bytes)) => {
            next.run(Request::from_parts(parts, Body::from(bytes)))
                .await
        }
        Ok(Err(_)) => {
            let text = format!(
                "the body must be sent whole and have at most {MAX_REQUEST_BODY_BYTES} bytes"
            );
            (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
        }
        Err(_elapsed) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}
