//! How a turn ends, known before its outcome is there: why it is ended while that is being written, and what it came to
//! while its hooks are told. The turn can no longer be stopped then, so they are stopped apart from it.

use allstop_core::{Cause, StopReason};
use allstop_scope::{Scope, Stop, StopOrder};
use parking_lot::Mutex;

use crate::error::TurnError;
use crate::outcome::TurnOutcome;

/// Why a turn is ended without a commit.
#[derive(Debug, Clone)]
pub struct TurnInterrupted {
    /// The cause.
    pub cause: Cause,
    /// The stop reason that its outcome will have.
    pub reason: StopReason,
    /// What failed, where something has.
    pub error: Option<TurnError>,
}

/// The ending of the running turn, or of the last one.
#[derive(Debug, Default)]
pub(crate) struct AfterTurn(Mutex<Ended>);

#[derive(Debug, Default)]
struct Ended {
    interrupted: Option<TurnInterrupted>,
    /// How the turn ended, while its hooks are told.
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
        let running = ended.hooks.clone().filter(|scope| !scope.is_quiet());
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
}
