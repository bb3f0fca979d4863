//! What is known of a server at a moment.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::connection::Connection;

/// What is known of a server at a moment.
#[derive(Debug, Clone)]
pub enum McpState {
    /// It is being started, or its tools are being listed.
    Starting,
    /// Its tools can be called.
    Ready,
    /// It cannot be used. Its tools stay listed and answer with an error.
    Degraded {
        /// Why.
        why: Arc<str>,
        /// When it is tried again; `None`: at the next call of one of its tools.
        next_try: Option<Instant>,
    },
    /// It was not started yet, or it was ended with the system.
    Stopped,
}

impl fmt::Display for McpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Ready => f.write_str("ready"),
            Self::Stopped => f.write_str("stopped"),
            Self::Degraded { why, next_try } => {
                write!(f, "not available: {why}; it is tried again ")?;
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

/// The same, with the connection where there is one.
#[derive(Debug, Clone)]
pub(super) enum Known {
    Starting,
    Ready(Arc<Connection>),
    Degraded {
        why: Arc<str>,
        next_try: Option<Instant>,
    },
    Stopped,
}

impl Known {
    pub(super) fn state(&self) -> McpState {
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
