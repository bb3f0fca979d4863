//! The ending of a turn before its outcome is there: the interrupt while it is being written, the outcome while the hooks
//! are told. The turn can no longer be stopped then, so its hooks are stopped apart from it.

use allstop_core::{Cause, StopReason};
use allstop_scope::{Scope, Stop, StopOrder};
use parking_lot::Mutex;

use crate::error::TurnError;
use crate::outcome::TurnOutcome;

/// Reason for which a turn is ended without a commit.
#[derive(Debug, Clone)]
pub struct TurnInterrupted {
    /// The cause.
    pub cause: Cause,
    /// The stop reason that its outcome will have.
    pub reason: StopReason,
    /// The failure, where there is one.
    pub error: Option<TurnError>,
}

/// The ending of the running turn, or of the last one.
#[derive(Debug, Default)]
pub(crate) struct AfterTurn(Mutex<Ended>);

#[derive(Debug, Default)]
struct Ended {
    interrupted: Option<TurnInterrupted>,
    /// The outcome, while the hooks are told.
    outcome: Option<TurnOutcome>,
    hooks: Option<Scope>,
    /// A stop came after the turn's commit: no hook starts behind it.
    is_stopped: bool,
}

impl AfterTurn {
    /// A turn begins.
    pub(crate) fn reset(&self) {
        *self.0.lock() = Ended::default();
    }

    /// The turn is ended for this reason; its ending is being written.
    pub(crate) fn interrupt(&self, interrupted: TurnInterrupted) {
        self.0.lock().interrupted = Some(interrupted);
    }

    pub(crate) fn interrupted(&self) -> Option<TurnInterrupted> {
        self.0.lock().interrupted.clone()
    }

    /// The turn has ended so; its outcome comes when its hooks are told.
    pub(crate) fn ended(&self, outcome: &TurnOutcome) {
        self.0.lock().outcome = Some(outcome.clone());
    }

    /// The hooks are told in this scope from now on. Returns whether they may be.
    pub(crate) fn may_begin_hooks(&self, scope: &Scope) -> bool {
        let mut ended = self.0.lock();
        ended.hooks = Some(scope.clone());
        !ended.is_stopped
    }

    pub(crate) fn outcome(&self) -> Option<TurnOutcome> {
        self.0.lock().outcome.clone()
    }

    /// Stops the hooks; `None` where none run.
    pub(crate) fn stop_hooks(&self, order: StopOrder) -> Option<Stop> {
        let mut ended = self.0.lock();
        ended.is_stopped = true;
        // Between two hooks nothing runs there, and the next one must not start.
        let is_open = |scope: &Scope| scope.check().is_ok() || !scope.is_quiet();
        let running = ended.hooks.clone().filter(is_open);
        drop(ended);
        running.map(|scope| scope.stop(order))
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::{Cause, CauseKind, Extent};
    use allstop_scope::{RootOptions, Scope, StopOrder};

    use super::AfterTurn;

    /// Between the commit and its hooks.
    #[tokio::test]
    async fn no_hook_starts_behind_a_stop() {
        let after = AfterTurn::default();
        let scope = Scope::root("hooks", RootOptions::current());
        let order = StopOrder::new(Extent::Turn, Cause::new(CauseKind::User));
        assert!(after.stop_hooks(order).is_none(), "none runs");
        assert!(!after.may_begin_hooks(&scope));
        after.reset();
        assert!(after.may_begin_hooks(&scope), "another turn");
    }

    #[tokio::test]
    async fn no_hook_starts_behind_a_stop_between_two_hooks() {
        let after = AfterTurn::default();
        let scope = Scope::root("hooks", RootOptions::current());
        assert!(after.may_begin_hooks(&scope));
        assert!(scope.is_quiet(), "the first has ended");
        let order = StopOrder::new(Extent::Turn, Cause::new(CauseKind::User));
        let stop = after.stop_hooks(order).expect("the second is to come");
        assert!(scope.check().is_err(), "it does not start");
        assert!(stop.receipt().await.quiet());
        let closed = Scope::root("hooks", RootOptions::current());
        closed.close();
        after.reset();
        assert!(after.may_begin_hooks(&closed));
        let order = StopOrder::new(Extent::Turn, Cause::new(CauseKind::User));
        assert!(after.stop_hooks(order).is_none(), "all have ended");
    }
}
