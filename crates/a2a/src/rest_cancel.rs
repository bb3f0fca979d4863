//! `POST /tasks/{id}:cancel` with its body.
//!
//! The library ignores the body, and so the cause that the client gives in its metadata.

use std::sync::Arc;

use a2a::{A2AError, CancelTaskRequest};
use a2a_pb::protojson_conv;
use a2a_server::RequestHandler as _;
use a2a_server::jsonrpc::MAX_REQUEST_BODY_BYTES;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use crate::rest;
use crate::service::A2aService;
use crate::streaming::params_of;

/// Answers cancellations with a body; passes all other requests on.
pub(crate) async fn layer(
    State(service): State<Arc<A2aService>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let id = match cancelled_task(parts.uri.path()) {
        Some(id) if parts.method == Method::POST => id,
        _ => return next.run(Request::from_parts(parts, body)).await,
    };
    let Ok(bytes) = to_bytes(body, MAX_REQUEST_BODY_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if bytes.is_empty() {
        return next.run(Request::from_parts(parts, Body::empty())).await;
    }
    match cancel(&service, &parts.headers, id, &bytes).await {
        Ok(task) => axum::Json(task).into_response(),
        Err(error) => rest::error_response(&error),
    }
}

/// Task id of `/tasks/{id}:cancel`.
fn cancelled_task(path: &str) -> Option<&str> {
    let (_, task) = path.rsplit_once("/tasks/")?;
    task.strip_suffix(":cancel")
        .or_else(|| task.strip_suffix("/cancel"))
}

async fn cancel(
    service: &A2aService,
    headers: &HeaderMap,
    id: &str,
    body: &[u8],
) -> Result<Value, A2AError> {
    let invalid = |error: &dyn std::fmt::Display| {
        A2AError::invalid_params(format!("invalid request body: {error}"))
    };
    let mut body: Value = serde_json::from_slice(body).map_err(|error| invalid(&error))?;
    if let Some(fields) = body.as_object_mut() {
        // The task is the one of the path.
        fields.insert("id".to_owned(), json!(id));
    }
    let request = protojson_conv::from_value::<CancelTaskRequest>(body);
    let request = request.map_err(|error| invalid(&error))?;
    let task = service.cancel_task(&params_of(headers), request).await?;
    protojson_conv::to_value(&task).map_err(|error| A2AError::internal(error.to_string()))
}
