//! State of a turn that is ending: the interrupt while the ending is written, and the outcome while the hooks run.
//! While the hooks run, a stop no longer reaches the turn, so the hooks are stopped separately.

use allstop_core::turn::LostTurn;
use allstop_core::{Cause, StopReason};
use allstop_scope::Scope;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::TurnError;
use crate::outcome::TurnOutcome;

/// Reason of a turn's end without a commit.
#[derive(Debug, Clone)]
pub struct InterruptReason {
    /// Cause of the interrupt.
    pub cause: Cause,
    /// Stop reason that the outcome will have.
    pub reason: StopReason,
    /// The failure, if there was one.
    pub error: Option<TurnError>,
}

/// Ending of a turn that the store has not confirmed.
#[derive(Debug, Clone)]
pub struct UnwrittenEnding {
    /// Calls that may have changed something, and that the conversation does not show without the ending.
    pub lost: Option<LostTurn>,
}

/// Ending of the running turn or, if no turn runs, of the last turn.
#[derive(Debug, Default)]
pub(crate) struct EndingTurn {
    state: Mutex<EndingTurnState>,
    /// Notified when the outcome is set.
    ended: Notify,
}

#[derive(Debug, Default)]
struct EndingTurnState {
    interrupted: Option<InterruptReason>,
    /// Set while the ending is written.
    unwritten: Option<UnwrittenEnding>,
    /// Outcome of the turn, set after the ending is written.
    outcome: Option<TurnOutcome>,
    hooks: Option<Scope>,
    /// True after a stop that arrived after the turn's commit: no further hook starts.
    is_stopped: bool,
}

impl EndingTurn {
    /// Clears the state at the start of a turn.
    pub(crate) fn reset(&self) {
        *self.state.lock() = EndingTurnState::default();
    }

    /// Sets the reason of the turn's end, before the ending is written.
    pub(crate) fn set_interrupt(&self, interrupted: InterruptReason) {
        self.state.lock().interrupted = Some(interrupted);
    }

    pub(crate) fn interrupted(&self) -> Option<InterruptReason> {
        self.state.lock().interrupted.clone()
    }

    /// Sets the ending before it is written.
    pub(crate) fn set_unwritten(&self, lost: Option<LostTurn>) {
        self.state.lock().unwritten = Some(UnwrittenEnding { lost });
    }

    pub(crate) fn unwritten(&self) -> Option<UnwrittenEnding> {
        self.state.lock().unwritten.clone()
    }

    /// Sets the outcome after the ending is written and before the hooks run.
    pub(crate) fn set_outcome(&self, outcome: &TurnOutcome) {
        let mut state = self.state.lock();
        state.unwritten = None;
        state.outcome = Some(outcome.clone());
        drop(state);
        self.ended.notify_waiters();
    }

    /// Waits for the outcome.
    ///
    /// Cancel safe.
    pub(crate) async fn has_outcome(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // The waiter is enabled before the check, so that it notices an outcome that is set after the check.
            ended.as_mut().enable();
            if self.state.lock().outcome.is_some() {
                return;
            }
            ended.await;
        }
    }

    /// Sets the scope of the hooks. Returns true if the hooks may start.
    pub(crate) fn may_begin_hooks(&self, scope: &Scope) -> bool {
        let mut state = self.state.lock();
        state.hooks = Some(scope.clone());
        !state.is_stopped
    }

    pub(crate) fn outcome(&self) -> Option<TurnOutcome> {
        self.state.lock().outcome.clone()
    }

    /// Prevents further hooks of this turn. Returns the scope of the hooks if this scope is open or not quiet. Between
    /// two hooks the scope is quiet but open.
    pub(crate) fn forbid_hooks(&self) -> Option<Scope> {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let is_open = |scope: &Scope| scope.check().is_ok() || !scope.is_quiet();
        state.hooks.clone().filter(is_open)
    }
}

#[cfg(test)]
mod tests {
    use allstop_core::{Cause, CauseKind, Extent};
    use allstop_scope::{RootOptions, Scope, StopRequest};

    use super::EndingTurn;

    /// A stop between the commit and the start of the hooks.
    #[tokio::test]
    async fn no_hook_starts_after_a_stop() {
        let after = EndingTurn::default();
        let scope = Scope::root("hooks", RootOptions::single_runtime());
        assert!(after.forbid_hooks().is_none(), "no hook runs");
        assert!(!after.may_begin_hooks(&scope));
        after.reset();
        assert!(after.may_begin_hooks(&scope), "another turn");
    }

    #[tokio::test]
    async fn no_hook_starts_after_a_stop_between_two_hooks() {
        let after = EndingTurn::default();
        let scope = Scope::root("hooks", RootOptions::single_runtime());
        assert!(after.may_begin_hooks(&scope));
        assert!(scope.is_quiet(), "the first hook has ended");
        let pending = after.forbid_hooks().expect("the second hook is pending");
        let order = StopRequest::new(Extent::Turn, Cause::new(CauseKind::User));
        let stop = pending.stop(order);
        assert!(scope.check().is_err(), "the second hook does not start");
        assert!(stop.receipt().await.quiet());
        let closed = Scope::root("hooks", RootOptions::single_runtime());
        closed.close();
        after.reset();
        assert!(after.may_begin_hooks(&closed));
        assert!(after.forbid_hooks().is_none(), "all hooks have ended");
    }
}
