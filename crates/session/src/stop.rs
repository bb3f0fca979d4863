//! Stops of parts of a session. Any handle can request a stop, and the session accepts the stop at once, even if its
//! owner (the task that runs the turns) hangs.

use std::sync::Arc;

use allstop_core::receipt::NothingToStop;
use allstop_core::{Cause, Receipt};
use allstop_scope::{Scope, StopRequest};

use crate::inner::{LockedState, SessionInner};
use crate::orphan_stop::AttachedOrphans;
use crate::queued_turn::QueuedTurn;
use crate::stop_handle::{RunningStop, SessionStop};
use crate::stop_list::FollowedStop;
use crate::stop_plan::{StopPlan, StopTarget};

impl SessionInner {
    /// Stops a target. On return no further work of the target starts.
    pub(crate) fn stop(self: &Arc<Self>, target: &StopTarget, cause: Cause) -> SessionStop {
        self.request_stop(target, cause).0
    }

    /// Like [`Self::stop`]. The second value is true if this request stops the target: the target had not ended, and no
    /// running stop covered it.
    pub(crate) fn request_stop(
        self: &Arc<Self>,
        target: &StopTarget,
        cause: Cause,
    ) -> (SessionStop, bool) {
        self.request_stop_if(target, cause, |_| true)
    }

    /// Like [`Self::request_stop`], but stops nothing if the state of the session is not allowed.
    pub(crate) fn request_stop_if(
        self: &Arc<Self>,
        target: &StopTarget,
        cause: Cause,
        is_allowed: impl FnOnce(&LockedState) -> bool,
    ) -> (SessionStop, bool) {
        let mut state = self.state.lock();
        if !is_allowed(&state) {
            let request = StopRequest::new(target.extent(), cause);
            drop(state);
            return (
                self.empty_stop(&request, NothingToStop::AlreadyEnded),
                false,
            );
        }
        if let StopTarget::Message(id) | StopTarget::MessageWork(id) = target {
            state.withdraw(id);
        }
        if matches!(target, StopTarget::Turn | StopTarget::TurnAndBackground)
            && let Some(command) = state.commands.take_model_call()
        {
            command.withdrawn(cause.clone());
        }
        let mut plan = self.plan(&state, target);
        let mut request = StopRequest::new(plan.extent, cause).target(Arc::clone(&plan.target));
        request.bystanders = std::mem::take(&mut plan.bystanders);
        let is_of_session = matches!(target, StopTarget::Session | StopTarget::Process);
        if is_of_session && state.awake.is_some() {
            // The queue is closed in the critical section that reads `awake`, so the owner that exists now will end the
            // session.
            state.queue.close();
        } else if *target == StopTarget::Session && self.ended.get().is_none() {
            // The session sleeps and has no work.
            state.queue.close();
            drop(state);
            self.hub.close();
            self.end();
            return (
                self.empty_stop(&request, NothingToStop::AlreadyEnded),
                false,
            );
        }
        if plan.is_empty() {
            drop(state);
            return (self.empty_stop(&request, plan.nothing), false);
        }
        if let Some(turn) = &plan.turn {
            plan.scopes.extend(turn.controls.forbid_hooks_after_turn());
        }
        let running = state.queue.running().cloned();
        let attached = self.attach_orphans(&mut state, &plan);
        plan.scopes.extend(attached.scopes);
        if plan.scopes.is_empty() && attached.items.is_empty() {
            // All targeted work had already ended.
            drop(state);
            return (
                self.empty_stop(&request, NothingToStop::AlreadyEnded),
                false,
            );
        }
        let accepted = self.host.scope.accept_stop_of(&plan.scopes, request);
        if *target == StopTarget::TurnAndBackground {
            self.renew_background(&mut state);
        }
        let (stop, is_new) = (accepted.stop(), accepted.is_new());
        if stop.request().extent != plan.extent {
            // The stop has joined a wider stop.
            plan.turn = running;
        }
        let ahead = running_ahead(state.queue.running(), plan.turn.as_ref());
        if let (Some(ahead), Some(turn)) = (&ahead, &plan.turn) {
            turn.controls.take_stop_policy_of(&ahead.controls);
        }
        let stop = SessionStop::carried_out(RunningStop {
            stop,
            has_turn_ahead: ahead.is_some(),
            turn: plan.turn.map(|turn| Arc::clone(&turn.state)),
            unattached: attached.items,
            outside: plan.outside,
        });
        // This happens under the lock, so that an owner that ends now waits for the receipt.
        let followed = state.stops.follow(stop);
        drop(state);
        drop(accepted.begin());
        self.changed.notify_one();
        let stop = match followed {
            FollowedStop::First(stop) => {
                self.follow(stop.clone());
                stop
            }
            FollowedStop::Joined(stop) => stop,
        };
        (stop, is_new)
    }

    /// Creates a new scope for the background work of later turns.
    fn renew_background(&self, state: &mut LockedState) {
        let Some(awake) = state.awake.as_mut() else {
            return;
        };
        awake.being_stopped.retain(|scope| !scope.is_quiet());
        if !awake.background_scope.is_stopped() {
            return;
        }
        // If the session itself is being stopped, there are no later turns.
        if let Ok(fresh) = self.background_scope(&awake.scope) {
            if let Some(background) = &awake.background {
                background.reopen(fresh.clone());
            }
            let old = std::mem::replace(&mut awake.background_scope, fresh);
            awake.being_stopped.push(old);
        }
    }

    /// Dry run of a stop of the target.
    pub(crate) fn preview(&self, target: &StopTarget, cause: Cause) -> Receipt {
        let state = self.state.lock();
        let plan = self.plan(&state, target);
        let left = state.orphan_items();
        let left: Vec<_> = left
            .filter(|item| plan.left.iter().any(|id| id.as_str() == &*item.id))
            .collect();
        drop(state);
        let request = StopRequest::new(plan.extent, cause).target(Arc::clone(&plan.target));
        let info = self.host.scope.stop_info(&request);
        let running = plan.scopes.iter().flat_map(Scope::running);
        let items: Vec<_> = running.chain(left).chain(plan.unsearched.clone()).collect();
        let has_ended = |turn: &Arc<QueuedTurn>| turn.state.try_outcome().is_some();
        if items.is_empty() && plan.turn.as_ref().is_none_or(has_ended) {
            // A stop would find nothing, and its receipt would not list the work outside the extent.
            let outcome = match plan.nothing {
                NothingToStop::NotFound if plan.is_empty() => NothingToStop::NotFound,
                _ => NothingToStop::AlreadyEnded,
            };
            return Receipt::empty(info, outcome).as_preview();
        }
        let beside = plan.bystanders.iter().flat_map(Scope::running);
        let outside: Vec<_> = beside.chain(plan.outside).collect();
        Receipt::of_preview(info, items).with_outside_items(outside)
    }

    fn empty_stop(&self, request: &StopRequest, outcome: NothingToStop) -> SessionStop {
        let info = self.host.scope.stop_info(request);
        SessionStop::answered(Receipt::empty(info, outcome))
    }
}

impl SessionInner {
    /// Moves the orphaned work of the plan into scopes. Orphaned work is background work that runs without this
    /// process.
    fn attach_orphans(
        self: &Arc<Self>,
        state: &mut LockedState,
        plan: &StopPlan,
    ) -> AttachedOrphans {
        let awake = state.awake.as_ref().map(|awake| &awake.scope);
        // A session that is being closed accepts no more work.
        let parent = awake.filter(|scope| !scope.is_stopped());
        let parent = parent.unwrap_or(&self.host.scope).clone();
        let mut attached = AttachedOrphans::default();
        for id in &plan.left {
            self.attach_orphan(state, id, &parent, &mut attached);
        }
        attached.items.extend(plan.unsearched.clone());
        attached
    }
}

/// Returns the running turn if the stopped turn waits for the end of the running turn.
fn running_ahead(
    running: Option<&Arc<QueuedTurn>>,
    stopped: Option<&Arc<QueuedTurn>>,
) -> Option<Arc<QueuedTurn>> {
    let (running, stopped) = (running?, stopped?);
    let waits = !Arc::ptr_eq(running, stopped) && !stopped.state.has_begun();
    waits.then(|| Arc::clone(running))
}
