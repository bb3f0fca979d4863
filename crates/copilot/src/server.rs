//! The server. Its clients share the open sessions of a system, which has a store, a model and tools.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allstop_core::{Cause, Receipt, SessionId};
use allstop_host::finish_work;
use allstop_remote::SocketFolder;
use allstop_runtime::System;
use allstop_scope::{Scope, WorkHandle};
use allstop_session::{Session, SessionRegistry};
use allstop_tools::PermissionAnswer;
use futures::future::join_all;
use tokio::sync::broadcast;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::connection::{Client, ClientId};
use crate::hosted::{HostedSession, SessionWarnings, now};
pub(crate) use crate::lifecycle::LifecycleKind;
use crate::lifecycle::{LIFECYCLE_EVENTS_MAX, LifecycleMetadata, SessionLifecycleEvent};
use crate::secret_filter::SecretFilter;
use crate::shutdown_work::ShutdownWork;
use crate::stored_settings::SettingsFile;

/// Default of `unattended_max`. A restarted client returns within seconds. After this time, a turn without a client
/// must not cause more cost.
pub const UNATTENDED_MAX_DEFAULT: Duration = Duration::from_mins(1);

/// Time after the request of a shutdown in which the server still refuses requests. Some SDKs wait for ever for the answer to
/// a request that they have sent before the connection ended. A client reads the answer to its shutdown within this time.
const LATE_REQUESTS_MAX: Duration = Duration::from_millis(200);

/// Options of a server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CopilotOptions {
    /// Version that the server reports to clients.
    pub version: Arc<str>,
    /// Maximum time that a session keeps running after its last client has disconnected without detaching. Then the
    /// turn and the background work of the session are stopped with the cause `disconnect`, and the session is closed.
    /// The session can be resumed later.
    pub unattended_max: Duration,
    /// Answer to a permission question that no client of its session answers. If it is [`PermissionAnswer::Unanswered`],
    /// a question without a handler stays open.
    pub default_answer: PermissionAnswer,
    /// Model of the configured provider that replaces the model of a session, if the provider limits the rate of its
    /// requests and a client agrees. `None` if the server never switches.
    pub auto_model: Option<Arc<str>>,
    /// Folder with the sockets of this user's processes. If another process has a session open and idle, the server takes
    /// the session over; `None` if it does not.
    pub sockets: Option<SocketFolder>,
    /// File with the settings that clients store for all sessions, such as MCP servers. The folder `plugins` next to it
    /// contains the installed plugins. Both must be closed to the tools of the sessions, because the servers are commands.
    /// `None` if the server stores no settings and no plugins.
    pub settings_file: Option<PathBuf>,
    /// Work before the answer to `runtime.shutdown`.
    pub before_shutdown: Option<ShutdownWork>,
}

impl CopilotOptions {
    /// Creates options with the default of `unattended_max`. A permission question without an answer denies the call.
    pub fn new(version: impl Into<Arc<str>>) -> Self {
        Self {
            version: version.into(),
            unattended_max: UNATTENDED_MAX_DEFAULT,
            default_answer: PermissionAnswer::Unanswered,
            auto_model: None,
            sockets: None,
            settings_file: None,
            before_shutdown: None,
        }
    }

    /// Sets the maximum time that a session keeps running without a client.
    #[must_use]
    pub fn unattended_max(mut self, unattended_max: Duration) -> Self {
        self.unattended_max = unattended_max;
        self
    }

    /// Sets the model that replaces the model of a session, if the provider limits the rate of its requests and a client
    /// agrees.
    #[must_use]
    pub fn auto_model(mut self, auto_model: impl Into<Option<Arc<str>>>) -> Self {
        self.auto_model = auto_model.into();
        self
    }

    /// Sets the folder with the sockets of this user's processes, so that idle sessions of these processes are taken over.
    #[must_use]
    pub fn sockets(mut self, sockets: impl Into<Option<SocketFolder>>) -> Self {
        self.sockets = sockets.into();
        self
    }

    /// Sets the file with the settings that clients store.
    #[must_use]
    pub fn settings_file(mut self, settings_file: impl Into<Option<PathBuf>>) -> Self {
        self.settings_file = settings_file.into();
        self
    }

    /// Sets the work before the answer to `runtime.shutdown`.
    #[must_use]
    pub fn before_shutdown(mut self, work: impl Into<Option<ShutdownWork>>) -> Self {
        self.before_shutdown = work.into();
        self
    }

    /// Sets the answer to a permission question that no client of its session answers.
    #[must_use]
    pub fn default_answer(mut self, default_answer: PermissionAnswer) -> Self {
        self.default_answer = default_answer;
        self
    }
}

/// Serves the sessions of one system to clients of the Copilot SDKs. Clones refer to the same server.
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
    lifecycle: broadcast::Sender<SessionLifecycleEvent>,
    secrets: Arc<SecretFilter>,
    settings: SettingsFile,
    warnings: SessionWarnings,
    /// Cancelled when a client requests a shutdown of the server.
    shutdown: CancellationToken,
}

impl CopilotServer {
    /// Creates a server for the sessions of this system. The connections run in the scope `connections`, which should
    /// not be below the scope of the system. Otherwise a stop of the system would end the connections before the
    /// answers are sent.
    pub fn new(system: Arc<System>, connections: Scope, options: CopilotOptions) -> Self {
        let settings = SettingsFile::new(options.settings_file.clone(), connections.clone());
        Self {
            inner: Arc::new(ServerInner {
                system,
                connections,
                settings,
                options,
                clients: AtomicU64::new(0),
                lifecycle: broadcast::channel(LIFECYCLE_EVENTS_MAX).0,
                secrets: Arc::default(),
                warnings: SessionWarnings::default(),
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

    /// Settings that clients store for all sessions.
    pub(crate) fn settings(&self) -> &SettingsFile {
        &self.inner.settings
    }

    /// Warnings about ignored parameters that the clients have.
    pub(crate) fn warnings(&self) -> &SessionWarnings {
        &self.inner.warnings
    }

    /// Secret values of the programs.
    pub(crate) fn secrets(&self) -> &Arc<SecretFilter> {
        &self.inner.secrets
    }

    pub(crate) fn next_client_id(&self) -> ClientId {
        ClientId(self.inner.clients.fetch_add(1, Ordering::Relaxed))
    }

    /// Completes a short time after a client has requested a shutdown of the server. Requests in this time are refused, so
    /// their senders get an answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn shutdown_requested(&self) {
        self.inner.shutdown.cancelled().await;
        sleep(LATE_REQUESTS_MAX).await;
    }

    /// True if a client has requested a shutdown.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.inner.shutdown.is_cancelled()
    }

    pub(crate) fn request_shutdown(&self) {
        self.inner.shutdown.cancel();
    }

    /// Notifies all clients of a change of a session.
    pub(crate) fn send_lifecycle(&self, kind: LifecycleKind, session: &SessionId) {
        let open = self.open_session(session);
        let metadata = open.map(|open| LifecycleMetadata {
            start_time: open.opened_at,
            modified_time: now(),
        });
        let event = SessionLifecycleEvent {
            kind,
            session_id: session.clone(),
            metadata,
        };
        // If no client is connected, the notification is not needed.
        drop(self.inner.lifecycle.send(event));
    }

    pub(crate) fn lifecycle_events(&self) -> broadcast::Receiver<SessionLifecycleEvent> {
        self.inner.lifecycle.subscribe()
    }

    pub(crate) fn registry(&self) -> &SessionRegistry {
        self.inner.system.registry()
    }

    /// Returns the session with this id, if the session is open for clients.
    pub(crate) fn open_session(&self, id: &SessionId) -> Option<Arc<HostedSession>> {
        self.registry().find(id)?.part()
    }

    pub(crate) fn open_sessions(&self) -> Vec<Arc<HostedSession>> {
        let open = self.registry().list();
        open.iter().filter_map(Session::part).collect()
    }

    pub(crate) fn has_open_sessions(&self) -> bool {
        !self.open_sessions().is_empty()
    }

    /// Begins to stop all work of a session and to close the session, which can be resumed later. `None` if the session
    /// is not open, or must not be closed. Dropping the handle does not cancel the close.
    pub(crate) fn close_session_if(
        &self,
        id: &SessionId,
        is_to_close: impl Fn(&HostedSession) -> bool,
        cause: Cause,
    ) -> Option<WorkHandle<Arc<Receipt>>> {
        let hosted = |session: &Session| session.part::<HostedSession>();
        let is_chosen = |session: &Session| hosted(session).is_some_and(|own| is_to_close(&own));
        let (session, reservation) = self.registry().reserve_open(id, is_chosen)?;
        // From now on, no client can find the session.
        let hosted = session.take_part::<HostedSession>()?;
        finish_work(
            self.connections(),
            format!("close of session {id}"),
            async move {
                let receipt = hosted.close(cause).await;
                drop(reservation);
                receipt
            },
        )
    }

    /// Detaches a disconnected client from all sessions. A session without clients is closed after a time.
    pub(crate) fn detach_client(&self, client: &Arc<Client>) {
        for session in self.open_sessions() {
            if session.detach(client.id) {
                session.begin_unattended(self);
            }
        }
    }

    /// Stops all work and closes all sessions. Returns their receipts.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the stops.
    pub async fn close(&self, cause: &Cause) -> Vec<Arc<Receipt>> {
        let sessions = self.open_sessions();
        let closing = sessions
            .iter()
            .filter_map(|session| self.close_session_if(session.id(), |_| true, cause.clone()));
        let closed = join_all(closing).await;
        closed.into_iter().filter_map(Result::ok).collect()
    }
}
