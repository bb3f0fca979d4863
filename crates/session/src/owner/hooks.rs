//! Hooks of the session for its start and end, and for failed and stopped turns. The hooks run outside stopped scopes
//! and have a time limit.

use std::pin::pin;
use std::sync::Arc;

use allstop_agent::{HookCx, HookEvent, TurnOutcome};
use allstop_core::{Cause, CauseKind, Extent, StopReason};
use allstop_scope::{Scope, ScopeOptions, StopRequest};
use tokio::time::sleep;

use super::SessionOwner;
use crate::inner::SessionInner;

impl SessionOwner {
    /// Calls the hooks after a turn that failed or was stopped.
    pub(super) async fn call_ending_hooks(&mut self, turn: &TurnOutcome) {
        if let Some(event) = ending_event(turn) {
            let above = self.scope.clone();
            self.call_hooks(&event, &above).await;
        }
    }

    /// True if hooks run after this turn.
    pub(super) fn has_ending_hooks(&self, turn: &TurnOutcome) -> bool {
        let agent = self.resources.as_ref().map(|open| &open.session.agent);
        let event = ending_event(turn);
        agent
            .zip(event)
            .is_some_and(|(agent, event)| agent.has_hook_for(&event))
    }

    /// Calls the hooks of the session in a scope below `above`. Carries out requests to detach background work
    /// meanwhile, because the process may exit before the hooks have ended.
    pub(super) async fn call_hooks(&mut self, event: &HookEvent, above: &Scope) {
        let Some(open) = &self.resources else { return };
        let agent = open.session.agent.clone();
        if !agent.has_hook_for(event) {
            return;
        }
        let label = format!("{}/hooks", self.inner.label());
        // If `above` was stopped meanwhile, no hook is called.
        let Ok(scope) = above.child(label, ScopeOptions::default()) else {
            return;
        };
        let cx = HookCx {
            session_id: self.inner.id.clone(),
            turn: self.inner.state.lock().position.last_turn,
            scope: scope.clone(),
        };
        self.inner.set_hooks_scope(Some(scope.clone()));
        let limit = self.inner.host.options.hooks_max;
        let mut calls = pin!(agent.notify_hooks(&cx, event));
        let mut too_long = pin!(sleep(limit));
        let inner = Arc::clone(&self.inner);
        let has_ended = loop {
            self.detach_waiting().await;
            tokio::select! {
                biased;
                () = &mut calls => break true,
                () = &mut too_long => break false,
                () = inner.changed.notified() => {}
            }
        };
        if !has_ended {
            let cause = Cause::new(CauseKind::Deadline).detail(format!("hooks limit of {limit:?}"));
            let receipt = scope.stop(StopRequest::new(Extent::Subtree, cause)).await;
            tracing::warn!(
                event = event.name(),
                quiet = receipt.quiet(),
                "hooks took too long"
            );
        }
        scope.close();
        self.inner.set_hooks_scope(None);
    }
}

impl SessionInner {
    fn set_hooks_scope(&self, scope: Option<Scope>) {
        if let Some(awake) = &mut self.state.lock().awake {
            awake.hooks = scope;
        }
    }
}

/// Event after a turn that failed or was stopped.
fn ending_event(turn: &TurnOutcome) -> Option<HookEvent> {
    Some(match (turn.stop_reason, &turn.error) {
        (StopReason::Completed, _) => return None,
        (StopReason::Error, error) => HookEvent::Error {
            message: error.as_ref().map_or_else(
                || "the turn failed".into(),
                |error| error.message.as_str().into(),
            ),
        },
        _ => HookEvent::Stop {
            receipt: turn.receipt.clone(),
        },
    })
}
