//! What is known of a process tree, published by its driver and read by everyone else.

use std::sync::Arc;

use allstop_core::process::ProcessIdentity;
use allstop_core::receipt::{How, Verified};
use tokio::time::Instant;

use super::spec::LaunchError;

/// How the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitInfo {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It has ended, but the keeper that could have said how was killed.
    Unknown,
}

impl ExitInfo {
    /// Whether it returned 0.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// What the driver has seen so far. It only grows: a field that is set stays as it is.
#[derive(Debug, Clone, Default)]
pub struct ProcessStatus {
    /// The main process, once it has started.
    pub main: Option<ProcessIdentity>,
    /// How the main process ended.
    pub exited: Option<ExitInfo>,
    /// Nothing of the tree is left, and how that is known.
    pub empty: Option<Verified>,
    /// When that became known.
    pub empty_at: Option<Instant>,
    /// It never started.
    pub failed: Option<Arc<LaunchError>>,
    /// Its keeper was killed: what that left behind is ended without it.
    pub keeper_lost: bool,
    /// It was let go with [`detach`](super::ProcessHandle::detach) and is no longer watched.
    pub detached: bool,
}

impl ProcessStatus {
    /// The strongest signal that a stop has ended it with, where it was asked for `strongest`: a tree that has lost its
    /// keeper is swept away with SIGKILL.
    pub fn ended_by(&self, strongest: Option<How>) -> Option<How> {
        match strongest {
            Some(_) if self.keeper_lost => Some(How::Sigkill),
            strongest => strongest,
        }
    }

    /// What receipts, models and people read of a tree whose keeper was killed.
    pub fn keeper_lost_note(&self) -> Option<&'static str> {
        self.keeper_lost.then_some(match self.empty {
            Some(Verified::ProcessTreeEmpty) => {
                "its keeper was killed: all that it had started fell to allstop, and was killed"
            }
            _ => {
                "its keeper was killed, and containment was lost: what could still be found was killed"
            }
        })
    }

    pub(super) fn set_empty(&mut self, verified: Verified) {
        self.empty = Some(verified);
        self.empty_at = Some(Instant::now());
    }
}

/// A wait that can have no answer any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unobserved {
    /// It never started.
    #[error("the process never started")]
    NeverStarted(#[source] Arc<LaunchError>),
    /// It was let go and is no longer watched.
    #[error("the process was detached")]
    Detached,
    /// The driver was dropped; its tree was killed or left to its keeper to kill.
    #[error("the driver of the process was dropped")]
    WatcherGone,
}

/// A signal that ends processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: an ask.
    Term,
    /// SIGKILL: force.
    Kill,
}

/// A process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub identity: ProcessIdentity,
    /// Its command line, arguments separated by spaces; its name in brackets where it has none.
    pub command_line: String,
}
