//! Why a command on sessions failed, with what helps.

use allstop_log::{LogError, SessionError};

use super::view::chain;
use crate::problem::Problem;

/// Why a command on sessions failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    /// No session has this id, and none begins with it.
    #[error("there is no session {given}")]
    NotFound {
        /// What was asked for.
        given: String,
        /// Ids that look like it, the nearest first.
        near: Vec<String>,
    },
    /// More than one session begins with it.
    #[error("{given} is the beginning of more than one session: {}", .matches.join(", "))]
    Ambiguous {
        /// What was asked for.
        given: String,
        /// Those that begin with it.
        matches: Vec<String>,
    },
    /// Its background work runs, and the log is all that tells of it.
    #[error("background work of the session {id} still runs: {}", .running.join(", "))]
    StillRuns {
        /// The session.
        id: String,
        /// The work, with its pid.
        running: Vec<String>,
    },
    /// A session cannot be read, is in use, or is gone by now.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl SessionsError {
    /// What helps, where something is known to.
    fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { near, .. } if near.is_empty() => {
                Some("`allstop sessions list` lists those there are".to_owned())
            }
            Self::NotFound { near, .. } => Some(format!("is it {}?", near.join(" or "))),
            Self::Ambiguous { .. } => Some("give more of the id".to_owned()),
            Self::StillRuns { id, .. } => Some(format!(
                "end it first: `allstop sessions show {id}` says how"
            )),
            Self::Session(SessionError::InUse { .. }) => {
                Some("stop the run that has it open, or wait for its end".to_owned())
            }
            Self::Session(_) | Self::Log(_) => None,
        }
    }
}

impl From<SessionsError> for Problem {
    fn from(error: SessionsError) -> Self {
        let message = chain(&error);
        let problem = match &error {
            SessionsError::NotFound { .. } | SessionsError::Ambiguous { .. } => {
                Self::usage(message)
            }
            _ => Self::failure(message),
        };
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}
