//! Tools of MCP servers, over standard input and output or streamable HTTP.
//!
//! [`McpServers`] starts the configured servers in a scope that is neither a turn's nor a session's, and gives their
//! tools, as `SERVER__TOOL`, to every session. One that hangs, dies or talks nonsense costs its own tools only: they
//! stay listed, answer with an error that says why, and the server is tried again after a growing pause. Tools that a
//! server adds or takes away while it runs come and go with the next model call; a call that runs goes on.
//!
//! # Stopping a call
//! The server is another machine, also where it is a process of ours that serves others: it can only be asked. Whatever
//! gives a call up (a stop, its time, a future that is dropped) sends `notifications/cancelled`, once. A server that
//! hears owes no answer, so silence says nothing: the receipt says `unreachable`. It says more where more is known:
//!
//! | after the cancellation | the call's item |
//! | --- | --- |
//! | the server still gives a result in time | `finished`, and the result counts |
//! | it answers with an error | `stopped`, `remote_confirmed` |
//! | nothing is heard | `unreachable`, `not_confirmed` |
//! | its process has ended, by itself or by [`OnIgnoredCancel::EndServer`] | `stopped`, with how, and the proof of its containment |
//!
//! # Hints
//! A server's hints say what repeating a call would do: `readOnlyHint` is read-only, `idempotentHint` idempotent,
//! everything else irreversible. They are believed, as the server is that somebody configured; a rule of permission
//! speaks before them.

mod calls;
mod cancel;
mod config;
mod connection;
mod convert;
mod ended;
mod handshake;
mod limits;
mod listing;
mod news;
mod pipes;
mod process;
mod server;
mod servers;
mod state;
mod supervise;
mod tap;
mod tool;

pub use config::{
    McpConfigError, McpOptions, McpServerConfig, McpTransport, OnIgnoredCancel, ToolFilter,
};
pub use limits::{
    CALL_TIMEOUT_DEFAULT, CALLS_MAX, CANCEL_SETTLE, DESCRIPTION_CHARS_MAX,
    HANDSHAKE_TIMEOUT_DEFAULT, MESSAGE_BYTES_MAX, SCHEMA_BYTES_MAX, TOOLS_MAX,
};
pub use news::{McpChange, McpNews};
pub use server::McpServer;
pub use servers::{McpServers, McpTools};
pub use state::McpState;
