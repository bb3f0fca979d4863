//! Tools of MCP servers, over standard input and output or streamable HTTP.
//!
//! [`McpServers`] starts the configured servers in a scope outside all turns and sessions, and offers their tools, as
//! `SERVER__TOOL`, to every session. A server that hangs, dies or sends invalid messages affects only its own tools.
//! Those tools stay listed and return an error with the reason, and the server is restarted after a growing pause.
//! Tools that a running server adds or removes change with the next model call; running calls continue.
//!
//! # Stopping a call
//! A server is beyond direct control, even as a local process, because it also serves other calls: Allstop can only
//! request a cancellation. Every end of the wait for a call (a stop, a time limit, a dropped future) sends
//! `notifications/cancelled` once. A server need not answer that notification, so silence proves nothing, and the
//! receipt reports `unreachable`. The receipt reports more if more is known:
//!
//! | after the cancellation | the call's item |
//! | --- | --- |
//! | the server still returns a result in time | `finished`, and the result counts |
//! | the server answers with an error | `stopped`, `remote_confirmed` |
//! | silence | `unreachable`, `not_confirmed` |
//! | its process has ended, by itself or by [`OnIgnoredCancel::EndServer`] | `stopped`, with the method and the proof |
//!
//! # Hints
//! A server's hints describe the effect of a repeated call: `readOnlyHint` means read-only, `idempotentHint` means
//! idempotent, and all other tools are irreversible. The hints are trusted, because a person configured the server.
//! Permission rules take precedence.

mod calls;
mod cancellation;
mod config;
mod connection;
mod connection_end;
mod convert;
mod handshake;
mod http_client;
mod interceptor;
mod limits;
mod listing;
mod pipes;
mod process;
mod server;
mod servers;
mod state;
mod status_events;
mod supervise;
mod tool;
mod url_query;

pub use config::{
    McpConfigError, McpOptions, McpServerConfig, McpTransport, OnIgnoredCancel, ToolFilter,
};
pub use limits::{
    CALL_TIMEOUT_DEFAULT, CALLS_MAX, CANCEL_SETTLE, DESCRIPTION_CHARS_MAX,
    HANDSHAKE_TIMEOUT_DEFAULT, MESSAGE_BYTES_MAX, SCHEMA_BYTES_MAX, TOOLS_MAX,
};
pub use server::McpServer;
pub use servers::{McpServers, McpTools};
pub use state::McpState;
pub use status_events::{McpStatusEvent, McpStatusEvents};
