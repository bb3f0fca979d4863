//! Failures of commands on sessions, with hints.

use std::io;
use std::path::PathBuf;

use allstop_core::counted::counted;
use allstop_core::error_chain;
use allstop_log::{LogError, SessionError};
use allstop_runtime::RemoveSessionError;

use crate::error::{CliError, CliErrorKind};
use crate::shell_command::SameFlags;

/// Failure of a command on sessions.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    /// No session id is equal to the given text, and no session id contains it.
    #[error("session `{given}` not found")]
    NotFound {
        /// The id as it was typed.
        given: String,
        /// Similar ids, the most similar one first.
        near: Vec<String>,
    },
    /// The typed number is greater than the length of the session list.
    #[error("session number {number} not found: the store has {}", counted(*.count as u64, "session", "sessions"))]
    NoNumber {
        /// The number as it was typed.
        number: usize,
        /// Number of sessions in the store.
        count: usize,
    },
    /// The store has no session.
    #[error("the store has no sessions")]
    None,
    /// The ids of several sessions contain the given text.
    #[error("`{given}` matches {} sessions: {}", .matches.len(), bounded(.matches))]
    Ambiguous {
        /// The id as it was typed.
        given: String,
        /// Short forms of the matching ids.
        matches: Vec<String>,
    },
    /// The session's background work still runs. The session cannot be removed, because this work is recorded only in
    /// the session's log.
    #[error("background work of the session `{id}` still runs: {}", .running.join(", "))]
    StillRuns {
        /// The session.
        id: String,
        /// The running work, each with its pid.
        running: Vec<String>,
    },
    /// The search for processes of the session's calls did not finish. The session cannot be removed, because only its
    /// log connects these processes with it.
    #[error("processes of the session `{id}` may still run: the search for them did not finish")]
    Unsearched {
        /// The session.
        id: String,
    },
    /// A session cannot be read, is in use, or no longer exists.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The lines of chats cannot be removed from their file. The sessions stay.
    #[error("the typed lines in {} cannot be removed", .path.display())]
    History {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The session or its output was not removed.
    #[error(transparent)]
    Remove(RemoveSessionError),
    /// The store failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl From<RemoveSessionError> for SessionsError {
    fn from(error: RemoveSessionError) -> Self {
        match error {
            RemoveSessionError::Session(error) => Self::Session(error),
            other => Self::Remove(other),
        }
    }
}

/// Maximum number of matching sessions that an error lists. A longer list would be too long to read.
const MATCHES_MAX: usize = 8;

/// Lists the newest matches, in the order of their ids, and the number of older matches.
fn bounded(matches: &[String]) -> String {
    let older = matches.len().saturating_sub(MATCHES_MAX);
    let newest = matches.iter().skip(older).map(String::as_str);
    let newest = newest.collect::<Vec<_>>().join(", ");
    match older {
        0 => newest,
        older => format!("{newest}, and {older} older"),
    }
}

impl SessionsError {
    /// True if the error keeps one session and not the others from being removed.
    pub(super) fn keeps_session(&self) -> bool {
        matches!(
            self,
            Self::StillRuns { .. }
                | Self::Unsearched { .. }
                | Self::Session(SessionError::InUse { .. } | SessionError::NotFound(_))
                | Self::Remove(RemoveSessionError::Output { .. })
        )
    }

    /// The remedy, if one is known.
    pub(super) fn hint(&self, flags: &SameFlags) -> Option<String> {
        match self {
            Self::NoNumber { .. } => {
                let list = flags.command("sessions list --all");
                Some(format!("`{list}` shows them with their numbers"))
            }
            Self::NotFound { near, .. } if near.is_empty() => {
                let list = flags.command("sessions list");
                Some(format!("`{list}` lists all sessions"))
            }
            Self::NotFound { near, .. } => {
                let near: Vec<_> = near.iter().map(|id| format!("`{id}`")).collect();
                Some(format!("did you mean {}?", near.join(" or ")))
            }
            Self::Ambiguous { .. } => {
                Some("choose one of these ids, or type more of the id".to_owned())
            }
            Self::StillRuns { id, .. } => {
                let stop = flags.command(&format!("stop {id}"));
                Some(format!("stop it first: `{stop}`"))
            }
            Self::Unsearched { .. } => Some("repeat the command".to_owned()),
            Self::Session(SessionError::InUse { id, .. })
                if id.as_str().starts_with("context-") =>
            {
                Some("`serve` closes it a minute after its last task: try again then".to_owned())
            }
            Self::Session(SessionError::InUse { id, .. }) => {
                let stop = flags.command(&format!("stop {id} --extent session"));
                Some(format!("stop and close it first: `{stop}`"))
            }
            Self::None => Some("`allstop chat` starts a session".to_owned()),
            Self::Remove(RemoveSessionError::Output { .. }) => Some(
                "make the folder writable, and repeat the command; the session stays until then"
                    .to_owned(),
            ),
            Self::Session(SessionError::Log(error) | SessionError::Damaged(error))
            | Self::Log(error) => error.hint(),
            Self::Session(_) | Self::History { .. } | Self::Remove(_) => None,
        }
    }
}

impl SessionsError {
    /// Converts the failure to an error for the user, with a hint. `flags` are the flags that a command on the same
    /// store needs.
    pub(super) fn into_problem(self, flags: &SameFlags) -> CliError {
        let message = error_chain(&self);
        let problem = match &self {
            Self::NotFound { .. }
            | Self::NoNumber { .. }
            | Self::None
            | Self::Session(SessionError::NotFound(_)) => CliError::not_found(message),
            Self::Ambiguous { .. } => CliError::usage(message),
            Self::StillRuns { .. }
            | Self::Unsearched { .. }
            | Self::Session(SessionError::InUse { .. }) => {
                CliError::failure(message).kind(CliErrorKind::Busy)
            }
            _ => CliError::failure(message),
        };
        match self.hint(flags) {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}
