//! The stop barrier of one scope. A scope contains work that can be stopped together. After a stop, the barrier lets no
//! new work start in the scope. Work is registered and the stop is checked in a single step.
//!
//! The barrier is pure and synchronous: the caller holds the mutex of the scope's group. Invariants:
//! 1. After [`StopBarrier::accept_stop`] or [`StopBarrier::close`], no work begins in this scope, because a barrier
//!    never opens again.
//! 2. Exactly one [`StopBarrier::finish`] follows each [`StopBarrier::count`].
//! 3. The first cause wins: a later stop does not change it.

use allstop_core::Cause;

/// Reason why work was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// A stop covers the scope.
    #[error("not started: stopped, {0}")]
    Stopped(Cause),
    /// The scope has been closed because its purpose has ended.
    #[error("not started: the scope is closed")]
    Closed,
}

impl NotStarted {
    /// The cause. `None` if the scope is closed.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Stopped(cause) => Some(cause),
            Self::Closed => None,
        }
    }
}

/// The barrier's state.
#[derive(Debug, Default)]
pub(crate) struct StopBarrier {
    cause: Option<Cause>,
    closed: bool,
    live: usize,
    /// True if any work has ever begun in this scope.
    begun: bool,
}

impl StopBarrier {
    /// Records that work begins in this scope. Call [`StopBarrier::check`] first.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Adds one piece of work to the count. The work is in this scope or in a scope below.
    pub(crate) fn count(&mut self) {
        self.live += 1;
    }

    /// Fails if no work may begin now. Checks only this scope, not the scopes above it.
    pub(crate) fn check(&self) -> Result<(), NotStarted> {
        match &self.cause {
            Some(cause) => Err(NotStarted::Stopped(cause.clone())),
            None if self.closed => Err(NotStarted::Closed),
            None => Ok(()),
        }
    }

    /// True if the barrier is open and no work has begun in this scope yet.
    pub(crate) fn waits(&self) -> bool {
        self.check().is_ok() && !self.begun
    }

    /// Removes one piece of work that has ended from the count.
    pub(crate) fn finish(&mut self) {
        debug_assert!(self.live > 0, "work ended that was never registered");
        self.live -= 1;
    }

    /// Closes the barrier for a stop.
    pub(crate) fn accept_stop(&mut self, cause: &Cause) {
        if self.cause.is_none() {
            self.cause = Some(cause.clone());
        }
    }

    /// Closes the barrier because the purpose of the scope has ended.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allstop_core::CauseKind;

    #[test]
    fn nothing_begins_after_a_stop_and_the_first_cause_wins() {
        let mut barrier = StopBarrier::default();
        assert!(barrier.waits());
        barrier.begin();
        barrier.count();
        barrier.accept_stop(&Cause::new(CauseKind::User));
        barrier.accept_stop(&Cause::new(CauseKind::Deadline));
        assert_eq!(
            barrier.check(),
            Err(NotStarted::Stopped(Cause::new(CauseKind::User)))
        );
        assert_eq!(barrier.live(), 1);
        barrier.finish();
        assert_eq!(barrier.live(), 0);
    }

    #[test]
    fn closed_barrier_refuses_without_a_cause() {
        let mut barrier = StopBarrier::default();
        barrier.close();
        assert_eq!(barrier.check(), Err(NotStarted::Closed));
    }
}
