//! The MCP servers of a system: started together, shared by the system's sessions, and ended with the system.

use std::sync::Arc;

use allstop_core::receipt::ItemKind;
use allstop_scope::{NotStarted, Scope, ScopeOptions, WorkHandle, WorkSpec};
use futures::future::join_all;
use parking_lot::Mutex;

use super::config::{McpConfigError, McpOptions, McpServerConfig};
use super::server::McpServer;
use super::state::{ServerLifetime, ServerState};
use super::status_events::McpStatusEvents;
use super::supervise::supervise;
use super::tool::McpTool;
use crate::output::OutputFolder;
use crate::source::ToolSource;
use crate::tool::Tool;

/// The servers of a system.
#[derive(Debug, Default)]
pub struct McpServers {
    servers: Arc<[Arc<McpServer>]>,
    /// Tasks that keep the servers connected; `None` before the start and after the end.
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
    /// Creates the servers without starting them.
    ///
    /// # Errors
    /// If two servers have the same name.
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

    /// All servers.
    pub fn all(&self) -> &[Arc<McpServer>] {
        &self.servers
    }

    /// Starts the servers below `scope`, unless they were started before, and waits until each is ready or unavailable.
    /// The handshake timeout of each server limits the wait. Servers that start late are left out.
    ///
    /// # Errors
    /// If a stop covers the scope.
    ///
    /// # Cancel safety
    /// Dropping the future does not prevent the servers from starting.
    pub async fn start(&self, scope: &Scope) -> Result<(), NotStarted> {
        self.begin(scope)?;
        self.settled().await;
        Ok(())
    }

    /// Waits until no server is starting.
    async fn settled(&self) {
        join_all(self.servers.iter().map(|server| server.settled())).await;
    }

    fn begin(&self, scope: &Scope) -> Result<(), NotStarted> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Ok(());
        }
        let first = self.servers.iter();
        let first = first.filter(|server| !server.config.starts_late);
        *running = Some(
            first
                .map(|server| run(server, scope))
                .collect::<Result<_, _>>()?,
        );
        Ok(())
    }

    /// Begins to start the late servers below `scope`, except servers that were started or ended before. Does nothing before
    /// [`McpServers::start`] and after the close.
    ///
    /// # Errors
    /// If a stop covers the scope.
    pub fn begin_late(&self, scope: &Scope) -> Result<(), NotStarted> {
        let mut running = self.running.lock();
        let Some(running) = &mut *running else {
            return Ok(());
        };
        let late = self.servers.iter();
        for server in late.filter(|server| server.config.starts_late && server.take_start()) {
            running.push(run(server, scope)?);
        }
        Ok(())
    }

    /// Starts the late servers like [`McpServers::begin_late`], and waits until each is ready or unavailable.
    ///
    /// # Errors
    /// If a stop covers the scope.
    ///
    /// # Cancel safety
    /// Dropping the future does not prevent the servers from starting.
    pub async fn start_late(&self, scope: &Scope) -> Result<(), NotStarted> {
        self.begin_late(scope)?;
        self.settled().await;
        Ok(())
    }

    /// Tools of all servers, for one session. A server that is not ready keeps the tools of its last list.
    pub fn tools(&self, output_folder: &Arc<OutputFolder>) -> McpTools {
        McpTools {
            servers: Arc::clone(&self.servers),
            output_folder: Arc::clone(output_folder),
        }
    }

    /// Status events for people.
    pub fn status_events(&self) -> McpStatusEvents {
        McpStatusEvents::of(&self.servers)
    }

    /// Prepares a close that follows the stops of all calls. Call this function if the program ends because of a stop,
    /// at best before the stop. From now on, a server that Allstop started is ended if it does not answer a cancelled
    /// call at once and no other call needs the server. So the receipt of the stop reports the verified end of the
    /// server's processes, instead of a call that may still run. The server does not start again.
    pub fn end_with_stopped_calls(&self) {
        for server in &*self.servers {
            server.shorten_lifetime(ServerLifetime::UntilCancelledCall);
        }
    }

    /// Ends all servers: closes the input of each server, and sends signals to servers that do not exit. This takes at
    /// most about one second.
    ///
    /// # Cancel safety
    /// Dropping the future does not prevent the servers from ending.
    pub async fn close(&self) {
        for server in &*self.servers {
            server.shorten_lifetime(ServerLifetime::Ending);
        }
        let running = self.running.lock().take();
        drop(join_all(running.into_iter().flatten()).await);
    }
}

/// Starts one server below `scope`.
fn run(server: &Arc<McpServer>, scope: &Scope) -> Result<WorkHandle<()>, NotStarted> {
    let label = format!("mcp/{}", server.name());
    let work = WorkSpec::new(ItemKind::Process, format!("mcp server {}", server.name()));
    let options = ScopeOptions::default()
        // The server, its supervisor and its reader are one item of a receipt.
        .unit(work.clone());
    let scope = scope.child(label, options)?;
    server.state.send_replace(ServerState::Starting);
    let server = Arc::clone(server);
    scope.spawn_control(work, |cx| supervise(server, cx))
}
