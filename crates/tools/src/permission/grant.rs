//! Permissions that a person gives for a session.

use std::sync::Arc;

/// A permission that a person granted until the session ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum SessionGrant {
    /// Every call of a tool.
    Tool(Arc<str>),
    /// One shell command, word for word. The same command in the background needs a separate grant, because the turn
    /// does not wait for the end of such a command.
    Command {
        command: Arc<str>,
        in_background: bool,
    },
}
