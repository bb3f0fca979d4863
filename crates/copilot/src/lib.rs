//! Sessions for programs that use the GitHub Copilot SDKs without changes.
//!
//! A [`CopilotServer`] serves the sessions of a [`System`](allstop_runtime::System) over JSON-RPC 2.0 with
//! `Content-Length` frames, on standard input and output or on a socket. The methods and events belong to version 3 of
//! the SDKs' protocol. In addition to the protocol, every stop returns a receipt, which lists the state of each part of
//! the stopped work. A single tool call can be stopped alone. A wait for an answer distinguishes completed, stopped and
//! timed out turns (`docs/copilot.md`).
//!
//! # Modules
//! - `connection` reads requests and writes answers; `server` holds the open sessions; `methods` implements the
//!   requests.
//! - `hosted` is one open session with its clients: their tools, hooks and questions, and the events that they receive.
//! - `translate` converts a session's events to the protocol's events, without a runtime.
//! - `plugins` reads and installs plugins.
//! - `builtin` provides the built-in tools with the names that the SDKs' users expect.
//!
//! ```no_run
//! use std::io;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use allstop_copilot::{ConnectionAccess, CopilotOptions, CopilotServer};
//! use allstop_core::Cause;
//! use allstop_runtime::System;
//! use allstop_scope::Scope;
//!
//! /// Serves the program that started this process, over standard input and output.
//! async fn serve(system: Arc<System>, connections: Scope, cause: Cause) -> io::Result<()> {
//!     let options = CopilotOptions::new("1.0.0").unattended_max(Duration::from_secs(60));
//!     let server = CopilotServer::new(system, connections, options);
//!     let (reader, writer) = (tokio::io::stdin(), tokio::io::stdout());
//!     server.serve(reader, writer, ConnectionAccess::Trusted).await;
//!     for receipt in server.close(&cause).await {
//!         eprintln!("{receipt}");
//!     }
//!     Ok(())
//! }
//! ```

mod builtin;
mod builtin_agents;
mod client_parts;
mod connection;
mod event;
mod hosted;
mod http_url;
mod lifecycle;
mod methods;
mod plugins;
mod provider;
mod refusal;
mod request_route;
mod secret_filter;
mod server;
mod shutdown_work;
mod stored_settings;
mod sub_agent_settings;
mod text_only_model;
mod translate;

pub use connection::{ConnectionAccess, ServedConnectionEnd};
pub use server::{CopilotOptions, CopilotServer, UNATTENDED_MAX_DEFAULT};
pub use shutdown_work::ShutdownWork;
