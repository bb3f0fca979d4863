//! Failures of calls, as text for a model: the event, then the remedy.

use std::path::PathBuf;

use allstop_core::{TaskId, error_chain};
use allstop_task::{CancelError, ExecuteError, ReadTaskError};
use rmcp::model::{CallToolResult, ContentBlock};

/// Reason why a call has no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error("wrong arguments for `{tool}`: {reason}")]
    WrongArguments { tool: &'static str, reason: String },
    #[error("folder `{}` not found: `cwd` names an existing folder", .0.display())]
    NoFolder(PathBuf),
    /// Also for a command of another client, because ids of others are private.
    #[error(
        "command `{0}` not found: this server has no command of yours with this id; `preview` lists your running commands"
    )]
    NotFound(TaskId),
    #[error("command `{0}` still runs: `preview` lists its work, and `stop` ends it")]
    StillRuns(TaskId),
    #[error("no command of yours has ended")]
    NoneEnded,
    /// The limit counts the commands of all clients.
    #[error("too many commands run on this server: wait until one ends, or `stop` one of yours")]
    Full,
    #[error("the server is shutting down and starts no commands")]
    ShuttingDown,
    /// The client has cancelled the call, and the command has verifiably ended or was not started. The text is for the
    /// client.
    #[error("{0}")]
    Cancelled(String),
    #[error("{0}")]
    Other(String),
}

impl CallFailure {
    /// The result of the call. A model can read it and correct itself.
    pub(crate) fn into_result(self) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(self.to_string())])
    }
}

impl From<ExecuteError> for CallFailure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Full(_) => Self::Full,
            ExecuteError::ShuttingDown => Self::ShuttingDown,
            error => Self::Other(error_chain(&error)),
        }
    }
}

impl From<ReadTaskError> for CallFailure {
    fn from(error: ReadTaskError) -> Self {
        match error {
            ReadTaskError::NotFound(id) => Self::NotFound(id),
            ReadTaskError::Store(error) => Self::Other(error_chain(&error)),
        }
    }
}

impl From<CancelError> for CallFailure {
    fn from(error: CancelError) -> Self {
        match error {
            CancelError::NotFound(id) => Self::NotFound(id),
            CancelError::ShuttingDown => Self::ShuttingDown,
            error => Self::Other(error_chain(&error)),
        }
    }
}
