//! Commands that the owner of a session (the task that runs its turns) carries out between two turns.

use std::collections::VecDeque;
use std::sync::Arc;

use allstop_agent::{PlainAnswerError, SummaryError, TurnError};
use allstop_core::ids::BackgroundId;
use allstop_core::{Cause, TurnNumber};
use allstop_log::SessionError;
use tokio::sync::oneshot;

use crate::compaction::{CompactError, CompactionResult};
use crate::orphan_scan::OrphanedWork;
use crate::queue::MessageRefused;
use crate::side_question::SideQuestionError;

#[derive(Debug)]
pub(crate) enum OwnerCommand {
    Undo(oneshot::Sender<Result<TurnNumber, UndoError>>),
    Compact(CompactReply),
    /// A question to the model outside the conversation.
    Ask(Arc<str>, SideQuestionReply),
    Detach(DetachTarget, DetachReply),
    /// The session is opened, so that background work can be started.
    Open(oneshot::Sender<Result<(), TurnError>>),
    /// The session sleeps at once. The reply is dropped if the session has a reason to stay awake.
    Release(oneshot::Sender<()>),
}

impl OwnerCommand {
    /// True if the command calls the model. It then runs as an entry of the queue, like a turn.
    pub(crate) fn calls_model(&self) -> bool {
        matches!(self, Self::Compact(_) | Self::Ask(..))
    }

    /// Answers a command that calls the model after a stop has withdrawn it. The caller may be gone.
    pub(crate) fn withdrawn(self, cause: Cause) {
        match self {
            Self::Compact(reply) => {
                drop(reply.send(Err(SummaryError::Stopped(cause).into())));
            }
            Self::Ask(_, reply) => {
                drop(reply.send(Err(PlainAnswerError::Stopped(cause).into())));
            }
            Self::Undo(_) | Self::Detach(..) | Self::Open(_) | Self::Release(_) => {}
        }
    }
}

pub(crate) type SideQuestionReply = oneshot::Sender<Result<Arc<str>, SideQuestionError>>;

pub(crate) type CompactReply = oneshot::Sender<Result<CompactionResult, CompactError>>;

pub(crate) type DetachReply = oneshot::Sender<Result<Vec<DetachResult>, BackgroundDetachError>>;

/// Commands that wait for the owner.
#[derive(Debug, Default)]
pub(crate) struct CommandQueue {
    waiting: VecDeque<OwnerCommand>,
    /// True while a command that calls the model waits or runs. At most one does.
    has_model_call: bool,
}

impl CommandQueue {
    pub(crate) fn push(&mut self, command: OwnerCommand) {
        self.has_model_call |= command.calls_model();
        self.waiting.push_back(command);
    }

    pub(crate) fn next(&mut self) -> Option<OwnerCommand> {
        self.waiting.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.has_model_call = false;
    }

    /// True while a command that calls the model waits or runs.
    pub(crate) fn has_model_call(&self) -> bool {
        self.has_model_call
    }

    /// Handles the end of the running command that calls the model.
    pub(crate) fn end_model_call(&mut self) {
        self.has_model_call = false;
    }

    /// Removes and returns the waiting command that calls the model.
    pub(crate) fn take_model_call(&mut self) -> Option<OwnerCommand> {
        let at = self.waiting.iter().position(OwnerCommand::calls_model)?;
        self.has_model_call = false;
        self.waiting.remove(at)
    }

    /// Removes and returns the first request to detach work.
    pub(crate) fn take_detach(&mut self) -> Option<(DetachTarget, DetachReply)> {
        let is_detach = |command: &OwnerCommand| matches!(command, OwnerCommand::Detach(..));
        let at = self.waiting.iter().position(is_detach)?;
        match self.waiting.remove(at)? {
            OwnerCommand::Detach(target, reply) => Some((target, reply)),
            OwnerCommand::Undo(_)
            | OwnerCommand::Compact(_)
            | OwnerCommand::Ask(..)
            | OwnerCommand::Open(_)
            | OwnerCommand::Release(_) => None,
        }
    }
}

/// Background work to detach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DetachTarget {
    One(BackgroundId),
    /// All running work.
    All,
}

/// Result of a detach for one piece of background work.
#[derive(Debug)]
pub struct DetachResult {
    /// The work, as recorded in the log.
    pub work: OrphanedWork,
    /// Reason why the work was not detached and still belongs to the session; `None` if it was detached.
    pub refused: Option<BackgroundDetachError>,
}

/// Reason why a session was not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// A turn runs or messages wait.
    #[error("a turn is running; stop it, or wait for its end")]
    Busy,
    /// Background work of the session runs, or its store has not answered.
    #[error("background work of the session is running")]
    HasWork,
}

/// Reason why a session cannot start background work.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundStartError {
    /// The session could not be opened.
    #[error(transparent)]
    NotOpen(TurnError),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] MessageRefused),
}

/// Reason why the last turn was not removed.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// A turn runs or messages wait, so it is not yet known which turn will be the last one.
    #[error("a turn is running; stop it, or wait for its end")]
    Busy,
    /// The conversation has no turn to remove: it is empty, or contains only a summary of earlier turns.
    #[error("no turn to undo")]
    NothingToUndo,
    /// The log failed or rejected the request.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error(transparent)]
    NotOpen(TurnError),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] MessageRefused),
}

/// Reason why background work was not detached.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundDetachError {
    /// No running background work has this id.
    #[error("no running background work has this id")]
    NotRunning,
    /// The work cannot outlive its session: only a command with a keeper, the small process that manages the command's
    /// process tree, can be detached.
    #[error("cannot be detached: {0}")]
    NotPossible(String),
    /// The log failed or rejected the request; nothing was detached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The session could not be opened.
    #[error(transparent)]
    NotOpen(TurnError),
    /// The session is closed.
    #[error(transparent)]
    Closed(#[from] MessageRefused),
}
