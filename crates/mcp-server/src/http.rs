//! The streamable HTTP endpoint.
//!
//! A client of a revision before 2026-07-28 has a session: a lost connection stops nothing, and
//! `notifications/cancelled` or the end of the session (`DELETE`) stops its requests at once. Other senders cannot use it. From 2026-07-28 on there are no
//! sessions, and a closed response stream stops its request. Commands of `background` belong to the sender of the
//! request, not to a session.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::http_messages::refuse_wrong_messages;
use crate::incoming::MESSAGE_BYTES_MAX;
use crate::server::CommandServer;
use crate::sessions::{ClientSessions, HttpEnd, guard_sessions};

/// Path of the endpoint.
pub const HTTP_PATH: &str = "/mcp";

/// Time without messages after which a session ends. A session without messages may wait for a long command, so the time
/// is a day.
const SESSION_IDLE_MAX: Duration = Duration::from_hours(24);

/// Origins of web pages that may call the server: pages of this machine, such as an inspector.
const ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

/// `Host` headers that an endpoint accepts. A web page of another site can resolve its name to a loopback address (DNS
/// rebinding); its requests have that name as `Host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedHosts {
    /// Names and addresses of this machine.
    Loopback,
    /// Any host, for an endpoint with authentication: a web page has no token.
    Any,
}

/// Routes of the endpoint at [`HTTP_PATH`], and their end.
pub fn http_router(server: &CommandServer, hosts: AcceptedHosts) -> (Router, HttpEnd) {
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(SESSION_IDLE_MAX);
    let manager = Arc::new(manager);
    let end = CancellationToken::new();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(ORIGINS)
        .enforce_origin_validation()
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
        .with_cancellation_token(end.clone());
    let config = match hosts {
        AcceptedHosts::Loopback => config,
        AcceptedHosts::Any => config.disable_allowed_hosts(),
    };
    let server = server.clone();
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&manager), config);
    let sessions = ClientSessions::new(manager);
    let end = sessions.end(end);
    let router = Router::new()
        .route_service(HTTP_PATH, service)
        .layer(from_fn(refuse_wrong_messages))
        .layer(from_fn_with_state(sessions, guard_sessions));
    (router, end)
}
