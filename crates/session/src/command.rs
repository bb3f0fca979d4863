//! Commands for the owner, which it carries out between two turns.

use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_log::SessionError;
use tokio::sync::oneshot;

use crate::compaction::{CompactError, Compacted};
use crate::desk::NotAdmitted;
use crate::found::FoundWork;

#[derive(Debug)]
pub(crate) enum Command {
    Undo(oneshot::Sender<Result<TurnNumber, UndoError>>),
    Compact(oneshot::Sender<Result<Compacted, CompactError>>),
    Detach(Detach, oneshot::Sender<Result<Vec<Detached>, DetachError>>),
}

/// Background work to detach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Detach {
    One(BackgroundId),
    /// All running work.
    All,
}

/// Result of a detach for one piece of background work.
#[derive(Debug)]
pub struct Detached {
    /// The work, as the log names it.
    pub work: FoundWork,
    /// Reason for which the work still belongs to the session, if it could not be detached.
    pub refused: Option<DetachError>,
}

/// Reason for which the last turn was not removed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// A turn runs or messages wait: the last turn is not determined yet.
    #[error("a turn is running")]
    Busy,
    /// There is no turn, or only a summary of it.
    #[error("there is no turn that could be taken back")]
    NothingToUndo,
    /// The log failed or refused.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error("the session is not open: {0}")]
    NotOpen(String),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] NotAdmitted),
}

/// Reason for which background work was not detached.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// No such work runs.
    #[error("no background work of this id runs")]
    NotRunning,
    /// Only processes with a keeper can outlive their session.
    #[error("it cannot be let go: {0}")]
    NotPossible(String),
    /// The log failed or refused: nothing was detached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error("the session is not open: {0}")]
    NotOpen(String),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] NotAdmitted),
}
