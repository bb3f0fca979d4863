//! Sessions of HTTP clients. A session belongs to the sender that began it: for other senders it does not exist.
//!
//! Invariant: a sender knows the id of a session only from the response that begins it, and the session has its owner
//! before that response leaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::SessionId;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::server::CommandOwner;

/// Maximum number of open sessions. A session that its client never ends stays for a day.
const SESSIONS_MAX: usize = 1_000;

/// Maximum time that the end of an endpoint waits for clients that read their answers. A client of this machine needs
/// milliseconds.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(1);

/// Header with the id of a session.
const SESSION_HEADER: &str = "mcp-session-id";

/// Token that is cancelled when a client ends the session of this request. In the extensions of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionEnd(pub(crate) CancellationToken);

/// Open sessions with their owners, and answers that clients are reading.
#[derive(Clone)]
pub(crate) struct ClientSessions {
    manager: Arc<LocalSessionManager>,
    owned: Arc<Mutex<HashMap<SessionId, SenderSession>>>,
    answers: TaskTracker,
}

#[derive(Clone)]
struct SenderSession {
    owner: CommandOwner,
    end: SessionEnd,
}

/// Ends the sessions of an endpoint.
#[derive(Debug, Clone)]
pub struct HttpEnd {
    sessions: CancellationToken,
    answers: TaskTracker,
}

impl HttpEnd {
    /// Waits until the clients have the answers to their requests, at most for this time and at most for a second. Then
    /// ends all sessions.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the sessions open.
    pub async fn close(&self, within: Duration) {
        self.answers.close();
        let _read_or_late = timeout(within.min(ANSWERS_WAIT_MAX), self.answers.wait()).await;
        self.sessions.cancel();
    }
}

impl ClientSessions {
    pub(crate) fn new(manager: Arc<LocalSessionManager>) -> Self {
        Self {
            manager,
            owned: Arc::default(),
            answers: TaskTracker::new(),
        }
    }

    pub(crate) fn end(&self, sessions: CancellationToken) -> HttpEnd {
        HttpEnd {
            sessions,
            answers: self.answers.clone(),
        }
    }

    async fn is_full(&self) -> bool {
        self.manager.sessions.read().await.len() >= SESSIONS_MAX
    }

    fn find(&self, id: &SessionId) -> Option<SenderSession> {
        self.owned.lock().get(id).cloned()
    }

    /// Enters a session, and removes the sessions that have ended.
    async fn enter(&self, id: SessionId, owner: CommandOwner) {
        let open = self.manager.sessions.read().await;
        let end = SessionEnd::default();
        let mut sessions = self.owned.lock();
        sessions.retain(|id, _| open.contains_key(id));
        sessions.insert(id, SenderSession { owner, end });
    }
}

/// Passes a request on, unless its session belongs to another sender or it may begin a session beyond the limit.
pub(crate) async fn guard_sessions(
    State(sessions): State<ClientSessions>,
    mut request: Request,
    next: Next,
) -> Response {
    let owner = CommandOwner::of(request.extensions());
    let method = request.method().clone();
    let id = session_id(request.headers());
    let session = id.as_ref().and_then(|id| sessions.find(id));
    let is_absent = match &session {
        Some(session) => session.owner != owner,
        // The library answers other requests with an unknown session. From revision 2026-07-28 on, it ignores the header.
        None => id.is_some() && method == Method::DELETE,
    };
    if is_absent {
        return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
    }
    if may_begin_session(request.headers()) && sessions.is_full().await {
        let reason = format!("{SESSIONS_MAX} sessions are open: end one with DELETE, or try later");
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    if let Some(session) = &session {
        request.extensions_mut().insert(session.end.clone());
    }
    let answering = sessions.answers.token();
    let response = next.run(request).await;
    match (method, session) {
        (Method::DELETE, Some(session)) if response.status().is_success() => {
            session.end.0.cancel();
            StatusCode::NO_CONTENT.into_response()
        }
        (Method::POST, session) => {
            if let (None, Some(id)) = (session, session_id(response.headers())) {
                sessions.enter(id, owner).await;
            }
            counted(response, answering)
        }
        _ => response,
    }
}

/// A response that counts as an open answer until its body has ended.
fn counted(response: Response, answering: TaskTrackerToken) -> Response {
    let (parts, body) = response.into_parts();
    let data = body.into_data_stream().map(move |data| {
        // The stream owns the token.
        let _open = &answering;
        data
    });
    Response::from_parts(parts, Body::from_stream(data))
}

fn session_id(headers: &HeaderMap) -> Option<SessionId> {
    let id = headers.get(SESSION_HEADER)?.to_str().ok()?;
    Some(id.into())
}

fn may_begin_session(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version");
    let version = version.and_then(|value| value.to_str().ok());
    let has_none = version.is_some_and(|version| version >= "2026-07-28");
    !headers.contains_key(SESSION_HEADER) && !has_none
}
