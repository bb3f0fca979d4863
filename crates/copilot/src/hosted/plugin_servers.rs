//! MCP servers of a session's plugins, which start at the first need.

use std::collections::BTreeSet;
use std::sync::Arc;

use allstop_agent::{FnHook, HookEvent, HookVerdict, hook};
use allstop_jsonrpc::RpcError;
use allstop_scope::Scope;
use allstop_tools::mcp::McpServers;
use tokio::sync::OnceCell;

use crate::client_parts::{ClientParts, server_name};
use crate::stored_settings::SettingsFile;

/// The servers. They start before the first model call of a turn, or when a client asks for their state.
#[derive(Debug)]
pub(crate) struct PluginServers {
    servers: Arc<McpServers>,
    scope: Scope,
    settings: SettingsFile,
    /// Each installed plugin by its copy, with the names of its servers in the names of tools.
    installed: Vec<(String, BTreeSet<String>)>,
    begun: OnceCell<()>,
    /// Set after the first wait. Later turns do not wait for a server that is starting again.
    started: OnceCell<()>,
}

impl PluginServers {
    pub(super) fn new(
        servers: Arc<McpServers>,
        scope: Scope,
        settings: SettingsFile,
        parts: &ClientParts,
    ) -> Self {
        let installed = parts.plugins.iter().filter_map(|one| {
            let servers = one.plugin.servers.keys();
            let names = servers.map(|name| server_name(name).into_owned());
            Some((one.copy.clone()?, names.collect()))
        });
        Self {
            servers,
            scope,
            settings,
            installed: installed.collect(),
            begun: OnceCell::new(),
            started: OnceCell::new(),
        }
    }

    /// Begins to start the servers, unless they were started before. Servers of plugins that were removed or disabled since
    /// the opening of the session do not start.
    ///
    /// # Errors
    /// Returns an error if the settings cannot be read, or a stop came first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn begin(&self) -> Result<(), RpcError> {
        let beginning = || async {
            if !self.installed.is_empty() {
                let stored = self.settings.read().await?;
                self.end(|copy| !stored.plugins.has_enabled(copy));
            }
            let begun = self.servers.begin_late(&self.scope);
            begun.map_err(|refused| RpcError::overloaded(refused.to_string()))
        };
        self.begun.get_or_try_init(beginning).await.copied()
    }

    /// Starts the servers, and waits until each is ready or unavailable, unless an earlier call has waited.
    ///
    /// # Errors
    /// Like [`PluginServers::begin`].
    ///
    /// # Cancel safety
    /// Dropping the future does not prevent the servers from starting.
    pub(crate) async fn start(&self) -> Result<(), RpcError> {
        let starting = || async {
            self.begin().await?;
            let started = self.servers.start_late(&self.scope).await;
            started.map_err(|refused| RpcError::overloaded(refused.to_string()))
        };
        self.started.get_or_try_init(starting).await.copied()
    }

    /// Begins to end the servers of the plugins with these copies. Their tools then return an error.
    pub(crate) fn end(&self, is_over: impl Fn(&str) -> bool) {
        let over = self.installed.iter().filter(|(copy, _)| is_over(copy));
        let names: BTreeSet<&str> = over
            .flat_map(|(_, names)| names)
            .map(String::as_str)
            .collect();
        for server in self.servers.all() {
            if names.contains(&**server.name()) {
                server.begin_end();
            }
        }
    }

    /// Returns a hook that starts the servers before the first model call of a turn. A stop of the turn ends the wait.
    pub(super) fn hook(self: Arc<Self>) -> FnHook {
        let starting = move |_cx, _event| {
            let servers = Arc::clone(&self);
            async move {
                if let Err(error) = servers.start().await {
                    tracing::warn!(error = %error.message, "the MCP servers of plugins do not start");
                }
                HookVerdict::Continue
            }
        };
        hook("plugin-servers", starting).only(|event| matches!(event, HookEvent::TurnStart { .. }))
    }
}
