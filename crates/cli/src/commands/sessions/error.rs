//! Failures of commands on sessions, with hints.

use allstop_core::counted::counted;
use allstop_core::error_chain;
use allstop_log::{LogError, SessionError};

use crate::error::CliError;
use crate::shell_command::SameFlags;

/// Failure of a command on sessions.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    /// No session has this id, and none has it as a part.
    #[error("there is no session `{given}`")]
    NotFound {
        /// The id as it was typed.
        given: String,
        /// Ids that look like it, the nearest first.
        near: Vec<String>,
    },
    /// The list is shorter.
    #[error("there is no session number {number}: the store has {}", counted(*.count as u64, "session", "sessions"))]
    NoNumber {
        /// The number as it was typed.
        number: usize,
        /// Sessions in the store.
        count: usize,
    },
    /// The store has no session.
    #[error("there are no sessions in the store")]
    None,
    /// More than one session has it as a part.
    #[error("`{given}` can mean {} sessions: {}", .matches.len(), bounded(.matches))]
    Ambiguous {
        /// The id as it was typed.
        given: String,
        /// Short forms of those.
        matches: Vec<String>,
    },
    /// Its background work runs, and the log is all that tells of it.
    #[error("background work of the session `{id}` still runs: {}", .running.join(", "))]
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

/// Sessions that an ambiguity names: those of one error are read, not searched.
const MATCHES_MAX: usize = 8;

/// The newest of them, as ids go.
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
    /// The remedy, if one is known.
    fn hint(&self, flags: &SameFlags) -> Option<String> {
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
                Some(format!("is it {}?", near.join(" or ")))
            }
            Self::Ambiguous { .. } => Some("give one of these, or more of the id".to_owned()),
            Self::StillRuns { id, .. } => {
                let stop = flags.command(&format!("stop {id}"));
                Some(format!("stop it first: `{stop}`"))
            }
            Self::Session(SessionError::InUse { id, .. }) => {
                let stop = flags.command(&format!("stop {id} --extent session"));
                Some(format!("stop and close it first: `{stop}`"))
            }
            Self::None => Some("`allstop chat` begins one".to_owned()),
            Self::Session(_) | Self::Log(_) => None,
        }
    }
}

impl SessionsError {
    /// The same for whoever gave the command, with what helps. `flags`: those that a command on the same store needs.
    pub(super) fn into_problem(self, flags: &SameFlags) -> CliError {
        let message = error_chain(&self);
        let problem = match &self {
            Self::NotFound { .. } | Self::NoNumber { .. } | Self::Ambiguous { .. } | Self::None => {
                CliError::usage(message)
            }
            _ => CliError::failure(message),
        };
        match self.hint(flags) {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}
