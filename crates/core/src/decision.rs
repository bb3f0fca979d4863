//! Atomic decision between the commit and the stop of a turn. The first caller decides; every later caller receives the
//! verdict. A commit adds the messages of a turn to the conversation of its session.
//!
//! A verdict for the commit excludes a stop, but the write of the commit can still fail. The turn then ends with the
//! stop reason `error` ([`PendingCommit::fail`](crate::turn::PendingCommit::fail)). A stop that comes after the verdict
//! changes nothing, even if the write fails.

use crate::cause::Cause;
use crate::sync::OnceLock;

/// The decision of a turn between commit and stop. Any thread may call [`CommitDecision::commit`] or
/// [`CommitDecision::stop`]; only the first call decides.
#[derive(Debug, Default)]
pub struct CommitDecision {
    verdict: OnceLock<CommitVerdict>,
    /// True if the commit is durable, false if the store refused the commit. Empty until the store answers.
    written: OnceLock<bool>,
}

/// The verdict of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitVerdict {
    /// The turn may commit, and can no longer be stopped.
    Commit,
    /// The turn is stopped, and can no longer commit.
    Stop(Cause),
}

/// Progress of a turn's ending, for callers that report on the turn before its outcome is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionState {
    /// The turn runs.
    Undecided,
    /// The turn is stopped, and can no longer commit.
    Stopped(Cause),
    /// The verdict is commit, but the store has not confirmed the write. The turn can no longer be stopped, and is not
    /// committed yet.
    Committing,
    /// The commit is durable.
    Committed,
    /// The store refused the commit: the turn ends with an error, and the conversation is unchanged.
    NotCommitted,
}

/// Permit to commit one turn. Only a decision for the commit creates a permit, and the commit consumes the permit.
#[derive(Debug)]
#[must_use = "a permit that is dropped leaves a turn that can neither commit nor be stopped"]
pub struct CommitPermit(());

impl CommitDecision {
    /// A decision without a verdict.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides for the commit.
    ///
    /// # Errors
    /// Returns the earlier verdict: a stop with its cause, or a commit, which already has its permit.
    pub fn commit(&self) -> Result<CommitPermit, CommitVerdict> {
        match self.verdict.set(CommitVerdict::Commit) {
            Ok(()) => Ok(CommitPermit(())),
            Err(_) => Err(self.verdict.get().cloned().unwrap_or(CommitVerdict::Commit)),
        }
    }

    /// Decides for the stop. Returns true if this call was the first one to decide. After an earlier decision, the call
    /// changes nothing.
    pub fn stop(&self, cause: Cause) -> bool {
        self.verdict.set(CommitVerdict::Stop(cause)).is_ok()
    }

    /// The verdict; `None` if the turn is undecided.
    pub fn verdict(&self) -> Option<&CommitVerdict> {
        self.verdict.get()
    }

    /// Progress of the turn's ending.
    pub fn state(&self) -> DecisionState {
        match (self.verdict(), self.written.get()) {
            (None, _) => DecisionState::Undecided,
            (Some(CommitVerdict::Stop(cause)), _) => DecisionState::Stopped(cause.clone()),
            (Some(CommitVerdict::Commit), None) => DecisionState::Committing,
            (Some(CommitVerdict::Commit), Some(true)) => DecisionState::Committed,
            (Some(CommitVerdict::Commit), Some(false)) => DecisionState::NotCommitted,
        }
    }

    /// Records the store's answer to the commit.
    pub(crate) fn settle_commit(&self, is_written: bool) {
        // Only the holder of the permit settles a commit, and only once.
        let _ = self.written.set(is_written);
    }

    /// The cause, if the verdict is a stop.
    pub fn stopped_by(&self) -> Option<&Cause> {
        match self.verdict() {
            Some(CommitVerdict::Stop(cause)) => Some(cause),
            _ => None,
        }
    }
}
