//! MCP servers that the clients of one session have named. They run as long as the session is open.

use std::path::Path;
use std::sync::Arc;

use allstop_core::SessionId;
use allstop_runtime::{StartError, System};
use allstop_scope::Scope;
use allstop_tools::mcp::McpServers;

use super::program_tokens::ProgramTokens;
use super::session_choice::SessionChoice;

/// Running servers.
#[derive(Debug)]
pub(crate) struct SessionServers {
    servers: Arc<McpServers>,
    scope: Scope,
}

impl SessionServers {
    /// Starts the servers of a session, and waits until each is ready or unavailable. `None` if the clients have named no
    /// server.
    ///
    /// # Errors
    /// Returns an error if a server cannot be used, or a stop came first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the servers end with the process.
    pub(super) async fn start(
        system: &System,
        session: &SessionId,
        choice: &SessionChoice,
        folder: &Path,
        tokens: &Arc<ProgramTokens>,
    ) -> Result<Option<Self>, StartError> {
        let enabled = choice.parts.enabled_servers();
        if enabled.is_empty() {
            return Ok(None);
        }
        let tokens = Arc::<ProgramTokens>::clone(tokens);
        let servers = Arc::new(system.session_servers(&enabled, folder, tokens)?);
        let scope = system.start_session_servers(&servers, session).await?;
        Ok(Some(Self { servers, scope }))
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
