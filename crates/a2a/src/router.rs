//! All bindings of the protocol on one router.

use std::sync::Arc;
use std::time::SystemTime;

use a2a::AgentCard;
use a2a_server::StaticAgentCard;
use a2a_server::agent_card::agent_card_router;
use a2a_server::jsonrpc::jsonrpc_router;
use a2a_server::rest::rest_router;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::LAST_MODIFIED;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use httpdate::fmt_http_date;

use crate::principal::{Authenticator, authenticate};
use crate::service::A2aService;
use crate::{legacy, limits, rest, rest_cancel, streaming};

/// JSON-RPC (`POST /`), REST, and the agent card, which needs no authentication.
pub fn http_router(
    service: &Arc<A2aService>,
    card: AgentCard,
    authenticator: Arc<dyn Authenticator>,
) -> Router {
    let operations = jsonrpc_router(Arc::clone(service))
        .merge(rest_router(Arc::clone(service)))
        .layer(from_fn_with_state(Arc::clone(service), streaming::layer))
        .layer(from_fn_with_state(Arc::clone(service), rest_cancel::layer))
        .layer(from_fn(rest::conform))
        .layer(from_fn(limits::read_body))
        .layer(from_fn_with_state(authenticator, authentication));
    let card = service.with_capabilities(card);
    let card = agent_card_router(Arc::new(StaticAgentCard::new(card)));
    let served_since = fmt_http_date(SystemTime::now());
    let card = card.layer(from_fn(move |request: Request, next: Next| {
        let served_since = served_since.clone();
        async move {
            let mut response = next.run(request).await;
            if let Ok(date) = HeaderValue::from_str(&served_since) {
                response.headers_mut().insert(LAST_MODIFIED, date);
            }
            response
        }
    }));
    card.merge(operations).merge(legacy::http_router())
}

async fn authentication(
    State(authenticator): State<Arc<dyn Authenticator>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authenticate(&*authenticator, request.headers_mut()) {
        Ok(()) => next.run(request).await,
        Err(status) => {
            let challenge = [("www-authenticate", "Bearer")];
            (status, challenge, "authentication is required").into_response()
        }
    }
}
