//! The servers of a system: started together, shared by its sessions, ended with it.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{NotStarted, Scope, ScopeOptions, WorkHandle, WorkSpec};
use futures::future::join_all;
use parking_lot::Mutex;

use super::config::{McpConfigError, McpOptions, McpServerConfig};
use super::news::McpNews;
use super::server::McpServer;
use super::state::Known;
use super::supervise::supervise;
use super::tool::McpTool;
use crate::output::OutputFolder;
use crate::source::ToolSource;
use crate::tool::Tool;

/// The servers of a system.
#[derive(Debug, Default)]
pub struct McpServers {
    servers: Arc<[Arc<McpServer>]>,
    /// What keeps them connected, once they were started.
    running: Mutex<Option<Vec<WorkHandle<()>>>>,
}

/// The tools of all servers, for one session.
#[derive(Debug)]
pub struct McpTools {
    servers: Arc<[Arc<McpServer>]>,
    output_folder: Arc<OutputFolder>,
}

impl ToolSource for McpTools {
    fn version(&self) -> u64 {
        self.servers
            .iter()
            .map(|server| server.list_version())
            .sum()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
        for server in &*self.servers {
            for definition in &*server.definitions() {
                tools.push(Arc::new(McpTool::new(
                    server,
                    definition,
                    &self.output_folder,
                )));
            }
        }
        tools
    }
}

impl McpServers {
    /// These servers; none of them is started yet.
    ///
    /// # Errors
    /// If two have one name.
    pub fn new(configs: Vec<McpServerConfig>, options: McpOptions) -> Result<Self, McpConfigError> {
        let options = Arc::new(options);
        let mut servers: Vec<Arc<McpServer>> = Vec::new();
        for config in configs {
            if servers.iter().any(|server| *server.name() == config.name) {
                return Err(McpConfigError::Duplicate { name: config.name });
            }
            servers.push(Arc::new(McpServer::new(config, Arc::clone(&options))));
        }
        Ok(Self {
            servers: servers.into(),
            running: Mutex::default(),
        })
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<McpServer>] {
        &self.servers
    }

    /// Starts all of them below this scope, unless that was done before, and waits until each is ready or is known not
    /// to be. Each is bounded by the time for its own handshake.
    ///
    /// # Errors
    /// If a stop covers the scope.
    ///
    /// # Cancel safety
    /// Dropping it leaves them starting.
    pub async fn start(&self, scope: &Scope) -> Result<(), NotStarted> {
        self.begin(scope)?;
        join_all(self.servers.iter().map(|server| server.settled())).await;
        Ok(())
    }

    fn begin(&self, scope: &Scope) -> Result<(), NotStarted> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Ok(());
        }
        let mut started = Vec::new();
        for server in &*self.servers {
            let label = format!("mcp/{}", server.name());
            let work = WorkSpec::new(ItemKind::Process, format!("mcp server {}", server.name()));
            let options = ScopeOptions {
                // The server, what watches it and what reads it are one item of a receipt.
                unit: Some(work.clone()),
                ..ScopeOptions::default()
            };
            let scope = scope.child(label, options)?;
            server.known.send_replace(Known::Starting);
            let server = Arc::clone(server);
            started.push(scope.spawn_control(work, |cx| supervise(server, cx))?);
        }
        *running = Some(started);
        Ok(())
    }

    /// The tools of all servers, for one session. Those of a server that is not ready are those that it had last.
    pub fn tools(&self, output_folder: &Arc<OutputFolder>) -> McpTools {
        McpTools {
            servers: Arc::clone(&self.servers),
            output_folder: Arc::clone(output_folder),
        }
    }

    /// What people are to be told of them.
    pub fn news(&self) -> McpNews {
        McpNews::of(&self.servers)
    }

    /// Ends all of them: their input is closed, and one that does not exit gets signals. Bounded by about a second.
    ///
    /// # Cancel safety
    /// Dropping it leaves them ending.
    pub async fn close(&self) {
        for server in &*self.servers {
            server.closing.send_replace(true);
        }
        let running = self.running.lock().take();
        drop(join_all(running.into_iter().flatten()).await);
    }
}
