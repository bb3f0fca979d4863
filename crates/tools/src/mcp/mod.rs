//! Tools of MCP servers, over standard input and output or streamable HTTP.
//!
//! [`McpServers`] starts the configured servers in a scope outside all turns and sessions, and offers the tools of the
//! servers to every session under the names `SERVER__TOOL`. If a server hangs, dies or sends invalid messages, only its
//! own tools are affected. Those tools stay listed and return an error with the reason. The server is restarted after a
//! pause, which grows with each attempt. If a running server adds or removes tools, the next model call uses the new
//! list; running calls continue.
//!
//! # Stopping a call
//! Allstop cannot end a call directly, even if the server is a local process, because the server also serves other
//! calls. Allstop can only request a cancellation. If the wait for a call ends without an answer (by a stop, a time
//! limit or a dropped future), Allstop sends `notifications/cancelled` once. A server need not answer this
//! notification, so silence proves nothing, and the receipt of the stop lists the call with the state `unreachable`. If
//! more is known, the receipt reports another state:
//!
//! | after the cancellation | state of the call's item, with its method or reason |
//! | --- | --- |
//! | the server still returns a result in time | `finished`, and the result counts |
//! | the server answers with an error | `stopped`, `remote_confirmed` |
//! | silence | `unreachable`, `not_confirmed` |
//! | its process has ended, by itself, by [`OnIgnoredCancel::EndServer`] or before a close | `stopped`, with the method and the proof |
//!
//! If the stop ends the whole program, the servers end too. So [`McpServers::end_with_stopped_calls`] ends the process
//! of a silent server immediately, and the receipt contains the proof.
//!
//! # Hints
//! A server's hints describe the consequence of repeating a call: `readOnlyHint` means read-only, and `idempotentHint`
//! means idempotent. The calls of all other tools count as irreversible. The hints are trusted, because a person
//! configured the server. Permission rules take precedence.

mod call_answer;
mod call_task;
mod call_token;
mod calls;
mod cancellation;
mod client_handler;
mod config;
mod connection;
mod connection_end;
mod connection_loss;
mod convert;
mod deep_answer;
mod discovery;
mod elicitation;
mod given_tokens;
mod handshake;
mod http_access;
mod http_client;
mod http_discovery;
mod input_round;
mod interceptor;
mod legacy_events;
mod limits;
mod listing;
mod login;
mod mcp_task;
mod pipes;
mod process;
mod refused_request;
mod required_pages;
mod server;
mod server_content;
mod server_output;
mod servers;
mod state;
mod status_events;
mod subscription;
mod supervise;
mod task_support;
mod tls_provider;
mod token_origin;
mod token_source;
mod tool;
mod url_query;
mod web_client;

pub use config::{
    McpConfigError, McpOptions, McpServerConfig, McpTransport, OnIgnoredCancel, ToolFilter,
};
pub use limits::{
    CALL_TIMEOUT_DEFAULT, CALLS_MAX, CANCEL_SETTLE, DESCRIPTION_CHARS_MAX,
    HANDSHAKE_TIMEOUT_DEFAULT, MESSAGE_BYTES_MAX, SCHEMA_BYTES_MAX, TOOLS_MAX,
};
pub use login::{ForgottenLogin, LoginClient, LoginOptions, McpLogin, McpLoginError, forget_login};
pub use server::McpServer;
pub use server_content::{McpContent, McpContentError, McpPrompt, SERVER_CONTENT_BYTES_MAX};
pub use servers::{McpServers, McpTools};
pub use state::McpState;
pub use status_events::{McpStatusEvent, McpStatusEvents};
pub use token_source::{McpChallenge, McpToken, McpTokenReason, McpTokenRequest, McpTokenSource};
