//! An MCP server that runs shell commands for other agents. Nothing of a command survives a stop, and each stop yields a
//! receipt: the ended work, the remaining work, and the evidence.
//!
//! Each command is one task of an [`allstop_task::TaskManager`] with a [`CommandExecutor`]. This crate only translates
//! the tools `exec`, `background`, `stop`, `preview` and `receipt` into operations of the manager, for clients on pipes
//! ([`serve_pipes`]) and over streamable HTTP ([`http_router`]).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use allstop_log::MemoryLog;
//! use allstop_mcp_server::{CommandConfig, CommandExecutor, CommandServer, serve_pipes};
//! use allstop_scope::{RootOptions, Scope, WorkSpec};
//! use allstop_task::{TaskManager, TaskOptions, TaskParts};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = Scope::root("server", RootOptions::current());
//! let config = CommandConfig::new(".");
//! let parts = TaskParts::of(CommandExecutor::new(config.clone()));
//! let options = TaskOptions::default().running_max(64);
//! let log = Arc::new(MemoryLog::new());
//! let manager = TaskManager::open(log, root.clone(), Arc::new(parts), options).await?;
//! let server = CommandServer::new(manager, &config, "1.0.0");
//! let spec = WorkSpec::new(allstop_core::receipt::ItemKind::Future, "client");
//! let serving = root.spawn(spec, |cx| async move {
//!     let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
//!     serve_pipes(server, input, output, CancellationToken::new(), &cx).await
//! })?;
//! serving.await??;
//! # Ok(())
//! # }
//! ```

mod arguments;
mod calls;
mod catalog;
mod command;
mod confirmed_cancel;
mod executor;
mod failure;
mod http;
mod http_messages;
mod incoming;
mod lookup;
mod open_requests;
mod output;
mod progress;
mod report;
mod result;
mod server;
mod sessions;
mod stdio;
mod wrong_request;

pub use executor::{CommandConfig, CommandExecutor};
pub use http::{AcceptedHosts, HTTP_PATH, http_router};
pub use server::{CommandOwner, CommandServer};
pub use sessions::HttpEnd;
pub use stdio::serve_pipes;
