//! The server: the sessions that its clients have open, by id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allstop_core::receipt::ItemKind;
use allstop_core::{Cause, Receipt, SessionId};
use allstop_runtime::System;
use allstop_scope::{Scope, WorkHandle, WorkSpec};
use allstop_tools::PermissionAnswer;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::connection::{Client, ClientId};
use crate::hosted::HostedSession;

/// Default time that a running turn of a session without a client waits for one that resumes it. A client that restarts
/// is back within seconds; nobody pays for a turn that nobody sees any longer than this.
pub const UNATTENDED_MAX_DEFAULT: Duration = Duration::from_mins(1);

/// Options of a server.
#[derive(Debug, Clone)]
pub struct CopilotOptions {
    /// Version that clients are told.
    pub version: Arc<str>,
    /// Time for which a session whose last client vanished without a word keeps running. Then its turn and its background
    /// work are stopped with cause `disconnect`, and it is closed; it can be resumed.
    pub unattended_max: Duration,
    /// Answer to a permission question that no client of its session answers.
    pub unasked: PermissionAnswer,
}

/// Serves the sessions of one system to clients of the Copilot SDKs. Clones are the same server.
#[derive(Debug, Clone)]
pub struct CopilotServer {
    inner: Arc<ServerInner>,
}

#[derive(Debug)]
struct ServerInner {
    system: Arc<System>,
    connections: Scope,
    options: CopilotOptions,
    clients: AtomicU64,
    sessions: Mutex<HashMap<SessionId, SessionSlot>>,
    /// Cancelled when a client has asked the server to shut down.
    shutdown: CancellationToken,
}

#[derive(Debug)]
enum SessionSlot {
    /// Somebody opens, closes or deletes it; the token is cancelled behind that.
    Reserved(CancellationToken),
    Open(Arc<HostedSession>),
}

/// Right to open, close or delete a session: nobody else does meanwhile.
#[derive(Debug)]
pub(crate) struct SessionReservation {
    server: CopilotServer,
    id: SessionId,
    released: CancellationToken,
}

impl SessionReservation {
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Makes the session known.
    pub(crate) fn opened(self, session: &Arc<HostedSession>) {
        let mut sessions = self.server.inner.sessions.lock();
        sessions.insert(self.id.clone(), SessionSlot::Open(Arc::clone(session)));
    }
}

impl Drop for SessionReservation {
    fn drop(&mut self) {
        let mut sessions = self.server.inner.sessions.lock();
        if matches!(sessions.get(&self.id), Some(SessionSlot::Reserved(_))) {
            sessions.remove(&self.id);
        }
        drop(sessions);
        self.released.cancel();
    }
}

/// Result of a look for a session.
#[derive(Debug)]
pub(crate) enum FoundSession<T> {
    /// It is not open here, and is reserved now.
    NotOpen(SessionReservation),
    /// It is open: the result of the function that was called with it.
    Open(T),
}

impl CopilotServer {
    /// A server of this system's sessions. The work of its connections runs in `connections`, which should not be below
    /// the system's own scope: so the answers to its stops still arrive.
    pub fn new(system: Arc<System>, connections: Scope, options: CopilotOptions) -> Self {
        Self {
            inner: Arc::new(ServerInner {
                system,
                connections,
                options,
                clients: AtomicU64::new(0),
                sessions: Mutex::default(),
                shutdown: CancellationToken::new(),
            }),
        }
    }

    pub(crate) fn system(&self) -> &Arc<System> {
        &self.inner.system
    }

    pub(crate) fn connections(&self) -> &Scope {
        &self.inner.connections
    }

    pub(crate) fn options(&self) -> &CopilotOptions {
        &self.inner.options
    }

    pub(crate) fn next_client_id(&self) -> ClientId {
        ClientId(self.inner.clients.fetch_add(1, Ordering::Relaxed))
    }

    /// Resolves when a client has asked the server to shut down.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn shutdown_requested(&self) {
        self.inner.shutdown.cancelled().await;
    }

    pub(crate) fn request_shutdown(&self) {
        self.inner.shutdown.cancel();
    }

    pub(crate) fn open_session(&self, id: &SessionId) -> Option<Arc<HostedSession>> {
        match self.inner.sessions.lock().get(id)? {
            SessionSlot::Open(session) => Some(Arc::clone(session)),
            SessionSlot::Reserved(_) => None,
        }
    }

    pub(crate) fn open_sessions(&self) -> Vec<Arc<HostedSession>> {
        let sessions = self.inner.sessions.lock();
        let open = sessions.values().filter_map(|slot| match slot {
            SessionSlot::Open(session) => Some(Arc::clone(session)),
            SessionSlot::Reserved(_) => None,
        });
        open.collect()
    }

    /// Looks for a session at once. The future waits while somebody opens or closes it. `use_open` runs before anybody can
    /// close the session.
    pub(crate) fn find_session<T: Send + 'static>(
        &self,
        id: &SessionId,
        use_open: impl Fn(&Arc<HostedSession>) -> T + Send + 'static,
    ) -> impl Future<Output = FoundSession<T>> + Send + 'static {
        let (server, id) = (self.clone(), id.clone());
        let mut looked = server.look(&id, &use_open);
        async move {
            loop {
                match looked {
                    Ok(found) => return found,
                    Err(released) => released.cancelled().await,
                }
                looked = server.look(&id, &use_open);
            }
        }
    }

    /// An error has the token of the reservation in the way.
    fn look<T>(
        &self,
        id: &SessionId,
        use_open: impl Fn(&Arc<HostedSession>) -> T,
    ) -> Result<FoundSession<T>, CancellationToken> {
        let mut sessions = self.inner.sessions.lock();
        match sessions.get(id) {
            Some(SessionSlot::Open(session)) => Ok(FoundSession::Open(use_open(session))),
            Some(SessionSlot::Reserved(released)) => Err(released.clone()),
            None => Ok(FoundSession::NotOpen(self.reserve(&mut sessions, id))),
        }
    }

    /// Runs work on a session in the server's own scope: a client that goes while it waits does not leave half a session.
    /// `None` if the server is being stopped.
    pub(crate) fn run_whole<T: Send + 'static>(
        &self,
        name: String,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<WorkHandle<T>> {
        let spec = WorkSpec::new(ItemKind::Future, name);
        let running = self.inner.connections.spawn_begun(spec, |_cx| work);
        running.ok()
    }

    fn reserve(
        &self,
        sessions: &mut HashMap<SessionId, SessionSlot>,
        id: &SessionId,
    ) -> SessionReservation {
        let released = CancellationToken::new();
        sessions.insert(id.clone(), SessionSlot::Reserved(released.clone()));
        SessionReservation {
            server: self.clone(),
            id: id.clone(),
            released,
        }
    }

    /// Begins to stop all work of a session and to close it: it can be resumed. `None` if it is not open, or not to be
    /// closed. Dropping the handle takes nothing back.
    pub(crate) fn close_session_if(
        &self,
        id: &SessionId,
        is_to_close: impl Fn(&HostedSession) -> bool,
        cause: Cause,
    ) -> Option<WorkHandle<Arc<Receipt>>> {
        let (session, reservation) = {
            let mut sessions = self.inner.sessions.lock();
            let session = match sessions.get(id)? {
                SessionSlot::Open(session) if is_to_close(session) => Arc::clone(session),
                SessionSlot::Open(_) | SessionSlot::Reserved(_) => return None,
            };
            (session, self.reserve(&mut sessions, id))
        };
        self.run_whole(format!("close of session {id}"), async move {
            let receipt = session.close(cause).await;
            drop(reservation);
            receipt
        })
    }

    /// Detaches a client that is gone from all sessions. Each session that it leaves alone is closed after a time.
    pub(crate) fn detach_client(&self, client: &Arc<Client>) {
        for session in self.open_sessions() {
            if session.detach(client.id) {
                session.begin_unattended(self);
            }
        }
    }

    /// Stops everything and closes all sessions. Returns their receipts.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the stops back.
    pub async fn close(&self, cause: &Cause) -> Vec<Arc<Receipt>> {
        let sessions = self.open_sessions();
        let closing = sessions
            .iter()
            .filter_map(|session| self.close_session_if(session.id(), |_| true, cause.clone()));
        let closed = join_all(closing).await;
        closed.into_iter().filter_map(Result::ok).collect()
    }
}
