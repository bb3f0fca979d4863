//! Errors of a login at an MCP server.

use std::path::PathBuf;
use std::time::Duration;

use super::super::url_query::without_queries;

/// Error of a login. The text contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpLoginError {
    /// The server cannot have a login: it is a local process, or its credentials are configured.
    #[error("{0}")]
    NotPossible(&'static str),
    /// The file with the tokens cannot be used.
    #[error("the login file {} cannot be used: {why}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The authorization server, or the description of it, does not allow the login.
    #[error("the login failed: {0}")]
    Failed(String),
    /// The person, or the authorization server, has refused the login.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// The browser has not come back in time.
    #[error("nobody has logged in within {0:?}")]
    Expired(Duration),
}

impl McpLoginError {
    pub(super) fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Failed(without_queries(&allstop_core::error_chain(error)))
    }
}
