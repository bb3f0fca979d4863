//! The state of an MCP server.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::connection::Connection;

/// State of a server.
#[derive(Debug, Clone)]
pub enum McpState {
    /// The server is being started, or its tools are being listed.
    Starting,
    /// The server's tools can be called.
    Ready,
    /// The server is unavailable. Its tools stay listed and return an error.
    Degraded {
        /// Reason of the outage.
        why: Arc<str>,
        /// Time of the next attempt; `None` if the next attempt starts with the next call of one of the server's tools.
        next_try: Option<Instant>,
    },
    /// The server was not started yet, or was ended with the system.
    Stopped,
}

impl fmt::Display for McpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Stopped => f.write_str("stopped"),
            Self::Degraded { why, next_try } => {
                write!(f, "not available: {why}; next attempt ")?;
                match next_try {
                    Some(at) => {
                        let left = at.saturating_duration_since(Instant::now());
                        write!(f, "in {} s", left.as_secs_f64().ceil())
                    }
                    None => f.write_str("at the next call"),
                }
            }
        }
    }
}

/// Remaining time of a server. The values are ordered, and the time never becomes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ServerLifetime {
    /// Until the close of the system.
    Kept,
    /// The system closes soon: until a call is cancelled and no other call needs the server. Applies only to a server
    /// that Allstop started.
    UntilCancelledCall,
    /// The server ends now.
    Ending,
}

/// State of a server, with the connection if there is one.
#[derive(Debug, Clone)]
pub(super) enum ServerState {
    Starting,
    Ready(Arc<Connection>),
    Degraded {
        why: Arc<str>,
        next_try: Option<Instant>,
    },
    Stopped,
}

impl ServerState {
    pub(super) fn public(&self) -> McpState {
        match self {
            Self::Starting => McpState::Starting,
            Self::Ready(_) => McpState::Ready,
            Self::Degraded { why, next_try } => McpState::Degraded {
                why: Arc::clone(why),
                next_try: *next_try,
            },
            Self::Stopped => McpState::Stopped,
        }
    }
}
