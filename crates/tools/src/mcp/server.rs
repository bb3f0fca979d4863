//! A server: its state, its tools, and the connection for a call.

use std::sync::Arc;
use std::time::Duration;

use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::config::{McpOptions, McpServerConfig};
use super::connection::Connection;
use super::convert::Definition;
use super::state::{Known, McpState};

#[derive(Debug, Default)]
struct Listed {
    tools: Arc<[Definition]>,
    version: u64,
}

/// An MCP server, shared by all sessions.
#[derive(Debug)]
pub struct McpServer {
    pub(super) config: McpServerConfig,
    pub(super) options: Arc<McpOptions>,
    pub(super) known: watch::Sender<Known>,
    tools: Mutex<Listed>,
    /// Notified to start a new attempt now.
    pub(super) wake: Notify,
    /// True once the server is to end.
    pub(super) closing: watch::Sender<bool>,
}

impl McpServer {
    pub(super) fn new(config: McpServerConfig, options: Arc<McpOptions>) -> Self {
        Self {
            config,
            options,
            known: watch::Sender::new(Known::Stopped),
            tools: Mutex::default(),
            wake: Notify::new(),
            closing: watch::Sender::new(false),
        }
    }

    /// Name of the server.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Current state of the server.
    pub fn state(&self) -> McpState {
        self.known.borrow().state()
    }

    /// Tools of the last list.
    pub(super) fn definitions(&self) -> Arc<[Definition]> {
        Arc::clone(&self.tools.lock().tools)
    }

    pub(super) fn list_version(&self) -> u64 {
        self.tools.lock().version
    }

    pub(super) fn take_over(&self, tools: Vec<Definition>) {
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
    pub(super) async fn settled(&self) -> Known {
        let mut known = self.known.subscribe();
        let settled = known.wait_for(|known| !matches!(known, Known::Starting));
        settled.await.map_or(Known::Stopped, |known| known.clone())
    }

    /// Returns the connection for one call. Waits for a connection that is being established, up to its own time limit.
    /// `Err` is the reason why there is no connection, with the next attempt.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn connection(&self, scope: &Scope) -> Result<Arc<Connection>, String> {
        let sleeping = matches!(*self.known.borrow(), Known::Degraded { next_try: None, .. });
        if sleeping {
            let mut known = self.known.subscribe();
            known.mark_unchanged();
            self.wake.notify_one();
            tokio::select! {
                // The server starts, or has stopped.
                _ = known.changed() => {}
                () = scope.stopped() => {}
            }
        }
        let known = tokio::select! {
            known = self.settled() => known,
            cause = scope.stopped_at("mcp connection") => return Err(format!("stopped: {cause}")),
        };
        match known {
            Known::Ready(connection) => Ok(connection),
            other => Err(format!("the server `{}` is {}", self.name(), other.state())),
        }
    }

    pub(super) fn call_timeout(&self) -> Option<Duration> {
        self.config.call_timeout
    }
}
