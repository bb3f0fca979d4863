//! Requests to the owner beside messages: it carries them out between two turns.

use allstop_core::TurnNumber;
use allstop_core::ids::BackgroundId;
use allstop_log::SessionError;
use tokio::sync::oneshot;

use crate::compaction::{CompactError, Compacted};
use crate::desk::NotAdmitted;
use crate::found::FoundWork;

/// Request to the owner.
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
    /// All that runs.
    All,
}

/// Answer of a detach for one piece of background work.
#[derive(Debug)]
pub struct Detached {
    /// The work, as the log names it.
    pub work: FoundWork,
    /// Reason that it still belongs to the session, where it could not be detached.
    pub refused: Option<DetachError>,
}

/// Reason that the last turn was not taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// A turn runs or messages wait: which turn would be the last is not known yet.
    #[error("a turn is running")]
    Busy,
    /// There is none, or only a summary is left of it.
    #[error("there is no turn that could be taken back")]
    NothingToUndo,
    /// The log says so.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error("the session is not open: {0}")]
    NotOpen(String),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] NotAdmitted),
}

/// Reason that background work was not detached.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// There is no such work that runs.
    #[error("no background work of this id runs")]
    NotRunning,
    /// Only processes with a keeper can outlive their session.
    #[error("it cannot be let go: {0}")]
    NotPossible(String),
    /// The log says so: then nothing was let go.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error("the session is not open: {0}")]
    NotOpen(String),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] NotAdmitted),
}
