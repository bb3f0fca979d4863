//! All bindings of the protocol on one router.

use std::sync::Arc;
use std::time::Instant;

use a2a::{A2AError, AgentCard, JsonRpcId};
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::HOST;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};

use crate::access::{AccessControl, AccessRefusal};
use crate::connection_activity::prove_connection;
use crate::limits::WholeRequest;
use crate::service::A2aService;
use crate::version::ProtocolVersion;
use crate::{card_routes, jsonrpc, legacy, limits, rest, streaming, task_actions, v0_3, version};

/// JSON-RPC (`POST /`), REST, and the agent card, which is public and has no rate limit.
pub fn http_router(service: &Arc<A2aService>, card: AgentCard, access: AccessControl) -> Router {
    let operations = jsonrpc_router(Arc::clone(service))
        .merge(rest_router(Arc::clone(service)))
        .layer(from_fn_with_state((Arc::clone(service), access), operation));
    let card = card_routes::router(&service.with_capabilities(card));
    card.merge(operations).merge(legacy::http_router())
}

/// Adds the access control of the operations to these routes.
pub fn restricted(routes: Router, access: AccessControl) -> Router {
    routes.route_layer(from_fn_with_state(access, admission))
}

async fn admission(
    State(access): State<AccessControl>,
    mut request: Request,
    next: Next,
) -> Response {
    add_authority(&mut request);
    match access.admit(request.headers_mut(), Instant::now()) {
        Ok(()) => {
            prove_connection(&request);
            next.run(request).await
        }
        Err(refusal) => refused(refusal),
    }
}

/// Adds the host of the request's URI to the `Host` headers, which the authentication checks. HTTP/2 has `:authority` in
/// place of the header.
pub(crate) fn add_authority(request: &mut Request) {
    let authority = request.uri().authority();
    let value = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(value) = value {
        request.headers_mut().append(HOST, value);
    }
}

fn refused(refusal: AccessRefusal) -> Response {
    let status = match refusal {
        AccessRefusal::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        AccessRefusal::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
    };
    (status, [refusal.header()], refusal.to_string()).into_response()
}

/// Refuses an operation, in the form of its binding. The body of the request is not read, so an error of JSON-RPC has no
/// id.
fn refused_operation(is_jsonrpc: bool, refusal: AccessRefusal) -> Response {
    let Some(error) = refusal.overload_error() else {
        return refused(refusal);
    };
    let mut response = if is_jsonrpc {
        jsonrpc::error_response(JsonRpcId::Null, &error)
    } else {
        rest::error_response(&error)
    };
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let (name, value) = refusal.header();
    response.headers_mut().insert(name, value);
    response
}

/// Answers one operation. A single layer performs all steps, because each layer costs a request several allocations.
async fn operation(
    State((service, access)): State<(Arc<A2aService>, AccessControl)>,
    mut request: Request,
    next: Next,
) -> Response {
    add_authority(&mut request);
    if let Err(refusal) = access.admit(request.headers_mut(), Instant::now()) {
        return refused_operation(is_jsonrpc(request.uri()), refusal);
    }
    prove_connection(&request);
    let request = match limits::read_body(request).await {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let (mut parts, body) = request.into_parts();
    let version = version::of(&mut parts.headers, &parts.uri);
    let built = service.memory.begin(&mut parts.headers);
    let request = WholeRequest::from_parts(parts, body);
    let response = if is_jsonrpc(request.uri()) {
        operate_jsonrpc(&service, &access, version, request, next).await
    } else {
        operate_rest(&service, &access, version, request, next).await
    };
    built.hand_over(response)
}

fn is_jsonrpc(uri: &Uri) -> bool {
    uri.path() == "/"
}

async fn operate_jsonrpc(
    service: &A2aService,
    access: &AccessControl,
    version: Result<ProtocolVersion, A2AError>,
    request: WholeRequest,
    next: Next,
) -> Response {
    let answered = match version {
        Ok(ProtocolVersion::V1) => streaming::answer(service, access, &request).await,
        Ok(ProtocolVersion::V0_3) => Box::pin(v0_3::answer(service, access, &request)).await,
        // The library answers with the error.
        Err(_) => None,
    };
    let response = match answered {
        Some(response) => response,
        None => next.run(request.map(Body::from)).await,
    };
    jsonrpc::conform(response).await
}

async fn operate_rest(
    service: &A2aService,
    access: &AccessControl,
    version: Result<ProtocolVersion, A2AError>,
    request: WholeRequest,
    next: Next,
) -> Response {
    let media_type = rest::media_type_for(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // The library checks the protocol version of JSON-RPC requests only (A2A 1.0, section 11.6).
    let response = if let Err(error) = version.and_then(ProtocolVersion::only_v1) {
        rest::error_response(&error)
    } else if let Some(response) = task_actions::answer(service, &request).await {
        response
    } else if let Some(response) = streaming::answer(service, access, &request).await {
        response
    } else {
        next.run(request.map(Body::from)).await
    };
    let is_list = method == Method::GET && path == "/tasks";
    let response = if is_list {
        rest::complete_page(response).await
    } else {
        response
    };
    rest::conform(&method, media_type, response).await
}
