//! Errors over JSON-RPC. The reason in their data names the condition of a server that takes no more work.

use a2a::{A2AError, JsonRpcId, JsonRpcResponse};
use axum::body::{HttpBody as _, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use crate::overload::{CONDITION, set_reasons};

/// Maximum size of an error with a condition, in bytes. Such an error has a short message.
const ERROR_BYTES_MAX: u64 = 16 * 1024;

/// The envelope of an error.
pub(crate) fn error(id: JsonRpcId, error: &A2AError) -> JsonRpcResponse {
    let mut error = error.to_jsonrpc_error();
    error.data.iter_mut().for_each(set_reasons);
    JsonRpcResponse::error(id, error)
}

pub(crate) fn error_response(id: JsonRpcId, error: &A2AError) -> Response {
    axum::Json(self::error(id, error)).into_response()
}

/// Corrects the reason in an error of the library.
pub(crate) async fn conform(response: Response) -> Response {
    let len = response.body().size_hint().exact();
    if len.is_none_or(|len| len > ERROR_BYTES_MAX) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, ERROR_BYTES_MAX as usize).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let has_condition = body
        .windows(CONDITION.len())
        .any(|word| word == CONDITION.as_bytes());
    let envelope = has_condition.then(|| serde_json::from_slice::<Value>(&body).ok());
    let Some(mut envelope) = envelope.flatten().filter(|it| it["error"].is_object()) else {
        return Response::from_parts(parts, body.into());
    };
    set_reasons(&mut envelope["error"]["data"]);
    axum::Json(envelope).into_response()
}
