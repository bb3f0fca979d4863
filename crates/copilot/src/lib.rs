//! Sessions for programs that use the GitHub Copilot SDKs, unmodified.
//!
//! A [`CopilotServer`] serves the sessions of a [`System`](allstop_runtime::System) over JSON-RPC 2.0 with
//! `Content-Length` frames, on standard input and output or on a socket. The methods and events are those of the SDKs'
//! protocol 3. Stops have more: every stop answers with a receipt, one call can be stopped alone, and a wait for an
//! answer tells completed, stopped and timed out apart (`docs/copilot.md`).
//!
//! # Modules
//! - `connection` reads requests and writes answers; `server` has the open sessions; `methods` are the requests.
//! - `hosted` is one open session with its clients: their tools, hooks and questions, and the events that they get.
//! - `translate` makes the protocol's events of a session's events, without a runtime.
//! - `builtin` has the built-in tools under the names that the SDKs' users expect.

mod builtin;
mod connection;
mod event;
mod hosted;
mod methods;
mod server;
mod translate;

pub use connection::{ConnectionAccess, ServedConnectionEnd};
pub use server::{CopilotOptions, CopilotServer, UNATTENDED_MAX_DEFAULT};
