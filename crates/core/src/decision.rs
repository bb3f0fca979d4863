//! Commit versus stop: one atomic decision. Whoever is first wins, and the other learns it.
//!
//! A decision for the commit only ends the race. If the commit cannot be written afterwards, the turn ends as `error`
//! ([`Commit::fail`](crate::turn::Commit::fail)); a stop that came second does not become the winner by that.

use crate::cause::Cause;
use crate::sync::OnceLock;

/// The one decision of a turn. It is made once, by [`Decision::commit`] or by [`Decision::stop`], from any thread.
#[derive(Debug, Default)]
pub struct Decision {
    verdict: OnceLock<Verdict>,
    /// Whether the commit is durable; empty while the store has not said.
    written: OnceLock<bool>,
}

/// The verdict of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The turn may commit, and can no longer be stopped.
    Commit,
    /// The turn is stopped, and can no longer commit.
    Stop(Cause),
}

/// Progress of a turn's ending, for whoever has to account for the turn before its outcome is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionState {
    /// The turn runs.
    Undecided,
    /// The turn is stopped, and can no longer commit.
    Stopped(Cause),
    /// The decision fell for the commit, whose write is not confirmed: the turn is neither stopped nor yet committed.
    Committing,
    /// The commit is durable.
    Committed,
    /// The commit was refused by the store: the turn ends with an error, and the conversation is as it was.
    NotCommitted,
}

/// The right to commit one turn. Made only by the decision that fell for it, and used up by the commit.
#[derive(Debug)]
#[must_use = "a permit that is dropped leaves a turn that can neither commit nor be stopped"]
pub struct CommitPermit(());

impl Decision {
    /// Undecided.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decides for the commit.
    ///
    /// # Errors
    /// The verdict that fell before: for a stop, with its cause, or for a commit, whose permit was given once already.
    pub fn commit(&self) -> Result<CommitPermit, Verdict> {
        match self.verdict.set(Verdict::Commit) {
            Ok(()) => Ok(CommitPermit(())),
            Err(_) => Err(self.verdict.get().cloned().unwrap_or(Verdict::Commit)),
        }
    }

    /// Decides for the stop. Returns whether this call was the first to decide; a later cause changes nothing.
    pub fn stop(&self, cause: Cause) -> bool {
        self.verdict.set(Verdict::Stop(cause)).is_ok()
    }

    /// The verdict, if it has fallen.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.get()
    }

    /// Progress of the turn's ending.
    pub fn state(&self) -> DecisionState {
        match (self.verdict(), self.written.get()) {
            (None, _) => DecisionState::Undecided,
            (Some(Verdict::Stop(cause)), _) => DecisionState::Stopped(cause.clone()),
            (Some(Verdict::Commit), None) => DecisionState::Committing,
            (Some(Verdict::Commit), Some(true)) => DecisionState::Committed,
            (Some(Verdict::Commit), Some(false)) => DecisionState::NotCommitted,
        }
    }

    /// The store has answered the commit.
    pub(crate) fn settle_commit(&self, is_written: bool) {
        // A commit is settled once, by the permit's holder.
        let _ = self.written.set(is_written);
    }

    /// The cause, if it fell for a stop.
    pub fn stopped_by(&self) -> Option<&Cause> {
        match self.verdict() {
            Some(Verdict::Stop(cause)) => Some(cause),
            _ => None,
        }
    }
}
