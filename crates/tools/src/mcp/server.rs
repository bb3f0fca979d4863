//! An MCP server: its state, its tools, and the connection for a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::config::{McpOptions, McpServerConfig, McpTransport};
use super::connection::Connection;
use super::convert::McpToolDefinition;
use super::given_tokens::GivenTokens;
use super::http_access::wanted_scopes;
use super::login::ServerLogin;
use super::state::{McpState, ServerLifetime, ServerState};

#[derive(Debug, Default)]
struct ToolList {
    tools: Arc<[McpToolDefinition]>,
    version: u64,
}

/// An MCP server, shared by all sessions.
#[derive(Debug)]
pub struct McpServer {
    pub(super) config: McpServerConfig,
    pub(super) options: Arc<McpOptions>,
    pub(super) state: watch::Sender<ServerState>,
    tools: Mutex<ToolList>,
    /// Notified when a new connection attempt should start immediately.
    pub(super) wake: Notify,
    pub(super) lifetime: watch::Sender<ServerLifetime>,
    /// True after a late start. The state alone does not distinguish it from a server that has ended.
    is_started: AtomicBool,
    /// `None` if the server needs no login, because it is a process or has configured credentials.
    pub(super) login: Option<Arc<ServerLogin>>,
    /// `None` without a source of tokens, or if the server needs no token.
    pub(super) tokens: Option<Arc<GivenTokens>>,
}

impl McpServer {
    pub(super) fn new(config: McpServerConfig, options: Arc<McpOptions>) -> Self {
        let (name, mut login, mut tokens) = (&config.name, None, None);
        let is_credential =
            |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
        if let McpTransport::Http { url, headers } = &config.transport
            && !headers.iter().any(is_credential)
        {
            match (&options.token_source, &options.login_folder) {
                (Some(source), _) => {
                    let source = Arc::clone(source);
                    tokens = Some(Arc::new(GivenTokens::new(name, url, source)));
                }
                (None, Some(folder)) => {
                    login = Some(Arc::new(ServerLogin::new(name, url, folder)));
                }
                (None, None) => {}
            }
        }
        Self {
            login,
            tokens,
            config,
            options,
            state: watch::Sender::new(ServerState::Stopped),
            tools: Mutex::default(),
            wake: Notify::new(),
            lifetime: watch::Sender::new(ServerLifetime::Kept),
            is_started: AtomicBool::new(false),
        }
    }

    /// Shortens the remaining time of the server, and never extends it.
    pub(super) fn shorten_lifetime(&self, to: ServerLifetime) {
        self.lifetime.send_if_modified(|lifetime| {
            let is_shorter = *lifetime < to;
            *lifetime = to.max(*lifetime);
            is_shorter
        });
    }

    /// True for the first caller, unless the server must end.
    pub(super) fn take_start(&self) -> bool {
        let is_kept = *self.lifetime.borrow() != ServerLifetime::Ending;
        is_kept && !self.is_started.swap(true, Ordering::Relaxed)
    }

    /// Begins to end this server, which then does not start again. Its running calls fail, and its tools return an error.
    pub fn begin_end(&self) {
        self.shorten_lifetime(ServerLifetime::Ending);
    }

    /// Name of the server.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Current state of the server.
    pub fn state(&self) -> McpState {
        self.state.borrow().public()
    }

    /// Rights that the server wanted with its last refusal, separated by blanks.
    pub fn wanted_scopes(&self) -> Option<String> {
        wanted_scopes(&self.login.as_ref()?.challenge()?)
    }

    /// True if the server is unavailable because it refused access, and a source could give it a token.
    pub fn needs_token(&self) -> bool {
        let tokens = self.tokens.as_ref();
        tokens.is_some_and(|tokens| tokens.is_refused())
    }

    /// Names of the tools in the last list, as the server names them.
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.definitions();
        tools.iter().map(|tool| tool.tool.to_string()).collect()
    }

    /// Tools in the last list with a view of the server, by name.
    pub fn view_tool_names(&self) -> Vec<String> {
        let tools = self.definitions();
        let with_view = tools.iter().filter(|tool| tool.has_view);
        with_view.map(|tool| tool.tool.to_string()).collect()
    }

    /// Tools in the last list.
    pub(super) fn definitions(&self) -> Arc<[McpToolDefinition]> {
        Arc::clone(&self.tools.lock().tools)
    }

    pub(super) fn list_version(&self) -> u64 {
        self.tools.lock().version
    }

    pub(super) fn replace_tools(&self, tools: Vec<McpToolDefinition>) {
        let mut listed = self.tools.lock();
        if *listed.tools != *tools {
            listed.tools = tools.into();
            listed.version += 1;
        }
    }

    /// Waits until the server is no longer starting.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn settled(&self) -> ServerState {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, ServerState::Starting));
        settled
            .await
            .map_or(ServerState::Stopped, |state| state.clone())
    }

    /// Returns the connection for one call. If a connection is being established, waits for that connection, at most
    /// until its time limit. `Err` contains the reason why no connection exists, and the time of the next attempt.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn connection(&self, scope: &Scope) -> Result<Arc<Connection>, String> {
        let sleeping = matches!(
            *self.state.borrow(),
            ServerState::Degraded { next_try: None, .. }
        );
        if sleeping {
            let mut state = self.state.subscribe();
            state.mark_unchanged();
            self.wake.notify_one();
            tokio::select! {
                // The server is starting, or has stopped.
                _ = state.changed() => {}
                () = scope.stopped() => {}
            }
        }
        let state = tokio::select! {
            state = self.settled() => state,
            cause = scope.stopped_at("mcp connection") => return Err(format!("stopped: {cause}")),
        };
        match state {
            ServerState::Ready(connection) => Ok(connection),
            other => Err(format!(
                "the server `{}` is {}",
                self.name(),
                other.public()
            )),
        }
    }

    /// True if the server is a process that Allstop starts.
    pub(super) fn is_process(&self) -> bool {
        matches!(self.config.transport, McpTransport::Stdio { .. })
    }

    pub(super) fn call_timeout(&self) -> Option<Duration> {
        self.config.call_timeout
    }
}
