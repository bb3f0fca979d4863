//! The stop barrier of one scope: registering work and checking for a stop are one step.
//!
//! The gate is pure and synchronous: the caller holds the mutex of the scope's cell. Invariants:
//! 1. After [`Gate::accept_stop`] or [`Gate::close`], nothing begins here: a gate never opens again.
//! 2. Exactly one [`Gate::finish`] follows each [`Gate::count`].
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
pub(crate) struct Gate {
    cause: Option<Cause>,
    closed: bool,
    live: usize,
    /// True once any work has begun here.
    begun: bool,
}

impl Gate {
    /// Records that work begins here. Call [`Gate::check`] first.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Adds one piece of work, here or below.
    pub(crate) fn count(&mut self) {
        self.live += 1;
    }

    /// Fails if nothing may begin now. Considers only this scope, not the scopes above it.
    pub(crate) fn check(&self) -> Result<(), NotStarted> {
        match &self.cause {
            Some(cause) => Err(NotStarted::Stopped(cause.clone())),
            None if self.closed => Err(NotStarted::Closed),
            None => Ok(()),
        }
    }

    /// True if the gate is open and no work has passed it yet.
    pub(crate) fn waits(&self) -> bool {
        self.check().is_ok() && !self.begun
    }

    /// Removes one piece of work that has ended.
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
    fn nothing_begins_behind_a_stop_and_the_first_cause_wins() {
        let mut gate = Gate::default();
        assert!(gate.waits());
        gate.begin();
        gate.count();
        gate.accept_stop(&Cause::new(CauseKind::User));
        gate.accept_stop(&Cause::new(CauseKind::Deadline));
        assert_eq!(
            gate.check(),
            Err(NotStarted::Stopped(Cause::new(CauseKind::User)))
        );
        assert_eq!(gate.live(), 1);
        gate.finish();
        assert_eq!(gate.live(), 0);
    }

    #[test]
    fn a_closed_gate_refuses_without_a_cause() {
        let mut gate = Gate::default();
        gate.close();
        assert_eq!(gate.check(), Err(NotStarted::Closed));
    }
}
