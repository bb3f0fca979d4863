//! One server: what is known of it, and a connection for a call.

use std::sync::Arc;
use std::time::Duration;

use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::config::{McpOptions, McpServerConfig};
use super::connection::Connection;
use super::convert::Definition;
use super::state::{Known, McpState};

/// The tools as they were listed last.
#[derive(Debug, Default)]
struct Listed {
    tools: Arc<[Definition]>,
    /// How often they have changed.
    version: u64,
}

/// A server, shared by all who use its tools.
#[derive(Debug)]
pub struct McpServer {
    pub(super) config: McpServerConfig,
    pub(super) options: Arc<McpOptions>,
    pub(super) known: watch::Sender<Known>,
    tools: Mutex<Listed>,
    /// Asks for an attempt now.
    pub(super) wake: Notify,
    /// Asks for the end.
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

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// What is known of it now.
    pub fn state(&self) -> McpState {
        self.known.borrow().state()
    }

    /// Its tools, as they were listed last.
    pub(super) fn definitions(&self) -> Arc<[Definition]> {
        Arc::clone(&self.tools.lock().tools)
    }

    /// How often its tools have changed.
    pub(super) fn list_version(&self) -> u64 {
        self.tools.lock().version
    }

    /// Its tools are these now.
    pub(super) fn take_over(&self, tools: Vec<Definition>) {
        let mut listed = self.tools.lock();
        if *listed.tools != *tools {
            listed.tools = tools.into();
            listed.version += 1;
        }
    }

    /// Waits until it is no longer starting.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn settled(&self) -> Known {
        let mut known = self.known.subscribe();
        let settled = known.wait_for(|known| !matches!(known, Known::Starting));
        settled.await.map_or(Known::Stopped, |known| known.clone())
    }

    /// A connection for one call. One that is being made is waited for, which its own time bounds. `Err`: why there is
    /// none, and what is done about it.
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
                // It says that it starts, or that it has stopped.
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

    /// How long a call may take.
    pub(super) fn call_timeout(&self) -> Option<Duration> {
        self.config.call_timeout
    }
}
