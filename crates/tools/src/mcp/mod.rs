//! Tools of MCP servers, over standard input and output or streamable HTTP.
//!
//! [`McpServers`] starts the configured servers in a scope outside all turns and sessions, and offers their tools, as
//! `SERVER__TOOL`, to every session. A server that hangs, dies or sends invalid messages affects its own tools only:
//! they stay listed and return an error with the reason, and the server is restarted after a growing pause. Tools that
//! a running server adds or removes change with the next model call; running calls continue.
//!
//! # Stopping a call
//! A server is beyond direct control, even as a local process, because it serves other calls too: it can only be asked.
//! Every end of the wait for a call (a stop, a time limit, a dropped future) sends `notifications/cancelled`, once. A
//! server owes no answer to that, so silence proves nothing: the receipt says `unreachable`. It says more if more is
//! known:
//!
//! | after the cancellation | the call's item |
//! | --- | --- |
//! | the server still gives a result in time | `finished`, and the result counts |
//! | it answers with an error | `stopped`, `remote_confirmed` |
//! | silence | `unreachable`, `not_confirmed` |
//! | its process has ended, by itself or by [`OnIgnoredCancel::EndServer`] | `stopped`, with how, and the proof of its containment |
//!
//! # Hints
//! A server's hints describe the effect of a repeated call: `readOnlyHint` means read-only, `idempotentHint`
//! idempotent, everything else irreversible. The hints are trusted, because a person configured the server; permission
//! rules take precedence.

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
