//! The streamable HTTP endpoint.
//!
//! A client of a revision before 2026-07-28 has a session: a lost connection stops nothing, and
//! `notifications/cancelled` or the end of the session (`DELETE`) stops its requests. From 2026-07-28 on there are no
//! sessions, and a closed response stream stops its request. Commands of `background` belong to the sender of the
//! request, not to a session.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::server::CommandServer;

/// Path of the endpoint.
pub const HTTP_PATH: &str = "/mcp";

/// Maximum number of open sessions. A session that its client never ends stays for [`SESSION_IDLE_MAX`].
const SESSIONS_MAX: usize = 1_000;

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

/// Routes of the endpoint at [`HTTP_PATH`]. A stop of `end` ends all sessions.
pub fn http_router(server: &CommandServer, hosts: AcceptedHosts, end: CancellationToken) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_IDLE_MAX);
    let sessions = Arc::new(sessions);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(ORIGINS)
        .enforce_origin_validation()
        .with_cancellation_token(end);
    let config = match hosts {
        AcceptedHosts::Loopback => config,
        AcceptedHosts::Any => config.disable_allowed_hosts(),
    };
    let server = server.clone();
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
    Router::new()
        .route_service(HTTP_PATH, service)
        .layer(from_fn_with_state(sessions, limit_sessions))
}

/// Refuses a request that may begin a session beyond the limit. Requests of a session, and those with a revision that has
/// no sessions, are never refused here.
async fn limit_sessions(
    State(sessions): State<Arc<LocalSessionManager>>,
    request: Request,
    next: Next,
) -> Response {
    if may_begin_session(request.headers()) && sessions.sessions.read().await.len() >= SESSIONS_MAX
    {
        let reason = format!("{SESSIONS_MAX} sessions are open: end one with DELETE, or try later");
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    next.run(request).await
}

fn may_begin_session(headers: &HeaderMap) -> bool {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let has_none = header("mcp-protocol-version").is_some_and(|version| version >= "2026-07-28");
    header("mcp-session-id").is_none() && !has_none
}
