//! MCP servers of one session, which its clients or its plugins have named. They run as long as the session is open.

use std::path::Path;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_runtime::StartError;
use allstop_scope::Scope;
use allstop_tools::mcp::McpServers;

use super::plugin_servers::PluginServers;
use super::program_tokens::ProgramTokens;
use super::session_choice::SessionChoice;
use crate::server::CopilotServer;

/// Running servers.
#[derive(Debug)]
pub(crate) struct SessionServers {
    servers: Arc<McpServers>,
    scope: Scope,
    /// `None` without servers of plugins.
    of_plugins: Option<Arc<PluginServers>>,
}

impl SessionServers {
    /// Starts the servers that the clients of a session have named, and waits until each is ready or unavailable. The
    /// servers of plugins start later. `None` if the session has no server.
    ///
    /// # Errors
    /// Returns an error if a server cannot be used, or a stop came first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the servers end with the process.
    pub(super) async fn start(
        server: &CopilotServer,
        session: &SessionId,
        choice: &SessionChoice,
        folder: &Path,
        tokens: &Arc<ProgramTokens>,
    ) -> Result<Option<Self>, StartError> {
        let enabled = choice.parts.enabled_servers();
        if enabled.is_empty() {
            return Ok(None);
        }
        let has_late = enabled.iter().any(|server| server.starts_late);
        let (system, settings) = (server.system(), server.settings());
        let tokens = Arc::<ProgramTokens>::clone(tokens);
        let servers = Arc::new(system.session_servers(&enabled, folder, tokens)?);
        let scope = system.start_session_servers(&servers, session).await?;
        let of_plugins = has_late.then(|| {
            let (servers, parts) = (Arc::clone(&servers), &choice.parts);
            Arc::new(PluginServers::new(
                servers,
                scope.clone(),
                settings.clone(),
                parts,
            ))
        });
        Ok(Some(Self {
            servers,
            scope,
            of_plugins,
        }))
    }

    pub(crate) fn of_plugins(&self) -> Option<&Arc<PluginServers>> {
        self.of_plugins.as_ref()
    }

    pub(crate) fn all(&self) -> Arc<McpServers> {
        Arc::clone(&self.servers)
    }

    /// Ends the servers.
    ///
    /// # Cancel safety
    /// Dropping the future does not prevent the servers from ending.
    pub(super) async fn close(&self) {
        self.servers.close().await;
        self.scope.close();
    }
}
