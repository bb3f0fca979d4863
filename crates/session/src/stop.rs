//! Stops of parts of a session, from any handle: accepted at once, in every state of the owner.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{StopFindings, StopOutcome, StopRequest};
use allstop_core::{CallId, Cause, Extent, MessageId, Receipt};
use allstop_scope::{Scope, StopOrder};
use allstop_tools::{BackgroundHost as _, BackgroundWork};

use crate::shared::{Awake, Inner, Shared};
use crate::slot::Slot;
use crate::stopping::{StopTarget, Stopping};

impl Shared {
    /// Stops a target. On return no further work of the target starts.
    pub(crate) fn stop(self: &Arc<Self>, target: &StopTarget, cause: Cause) -> Stopping {
        let mut inner = self.inner.lock();
        let ends_session = matches!(target, StopTarget::Session | StopTarget::Process);
        if ends_session && inner.awake.is_some() {
            // In the same critical section that reads `awake`: the owner that exists now will end the session.
            inner.desk.close();
        }
        let (running, last) = (inner.desk.running().cloned(), inner.last.clone());
        let next = running.clone().or_else(|| inner.desk.all().next().cloned());
        let awake = inner.awake.clone();
        let had_turns = inner.known.last_turn.0 > 0;
        let named = match target {
            StopTarget::Message(id) => inner.slot_of(id),
            _ => None,
        };
        drop(inner);
        let nothing = |outcome| self.nothing(target, cause.clone(), outcome);
        let ended = if had_turns {
            StopOutcome::AlreadyEnded
        } else {
            StopOutcome::NotFound
        };
        let Some(awake) = awake else {
            return nothing(match target {
                StopTarget::Background(id) => {
                    return self
                        .stop_left(id, &cause, &self.host.scope)
                        .unwrap_or_else(|| nothing(StopOutcome::NotFound));
                }
                StopTarget::Call(_) | StopTarget::Message(_) => StopOutcome::NotFound,
                StopTarget::Process => {
                    let order = StopOrder::new(target.extent(), cause);
                    return Stopping::one(self.host.scope.stop(order), None);
                }
                StopTarget::Session if self.ended.get().is_none() => {
                    return match self.close_asleep(&cause) {
                        Some(closed) => closed,
                        // The session has woken up meanwhile.
                        None => self.stop(target, cause),
                    };
                }
                _ => ended,
            });
        };
        let stop_turn = |slot: &Slot, bystander: Option<&Scope>| {
            let stop = slot.stop(cause.clone(), bystander);
            let stop = Stopping::one(stop, Some(Arc::clone(&slot.state)));
            self.with_hooks(slot, &awake, stop, target)
        };
        match target {
            StopTarget::Call(id) => match call_scope(&awake, running.iter().chain(&last), id) {
                Some(scope) => {
                    Stopping::one(scope.stop(StopOrder::new(target.extent(), cause)), None)
                }
                None => nothing(StopOutcome::NotFound),
            },
            StopTarget::Turn => match next.or(last) {
                Some(slot) => stop_turn(&slot, Some(&awake.background_scope)),
                None => nothing(ended),
            },
            StopTarget::Message(id) => match named {
                Some((own, taken_by)) => {
                    let slot = match &taken_by {
                        // The message is a part of that turn. If the turn puts it back, the message itself is stopped
                        // as well.
                        Some(turn) if !turn.controls.withdraw(id) => {
                            drop(own.stop(cause.clone(), None));
                            turn
                        }
                        _ => &own,
                    };
                    stop_turn(slot, Some(&awake.background_scope))
                }
                None => nothing(StopOutcome::NotFound),
            },
            StopTarget::TurnAndBackground => {
                // The turn first: background work that its calls start now is refused, or is found below.
                let turn = next.map(|slot| stop_turn(&slot, None));
                let background = self.stop_background(&cause, turn.is_some());
                let mut parts: Vec<_> = turn.into_iter().chain(background).collect();
                // Hooks that run after the last turn.
                let hooks = awake.hooks.filter(|hooks| !hooks.is_stopped());
                let stop =
                    |hooks: Scope| hooks.stop(StopOrder::new(target.extent(), cause.clone()));
                parts.extend(hooks.map(|hooks| Stopping::one(stop(hooks), None)));
                if parts.is_empty() {
                    return nothing(ended);
                }
                Stopping::parts(self.request(target, cause), parts)
            }
            StopTarget::Session | StopTarget::Process => {
                let scope = match target {
                    StopTarget::Process => &self.host.scope,
                    _ => &awake.scope,
                };
                let stop = scope.stop(StopOrder::new(target.extent(), cause));
                self.changed.notify_one();
                Stopping::one(stop, running.map(|slot| Arc::clone(&slot.state)))
            }
            StopTarget::Background(id) => match work(&awake, id) {
                Some(work) if !work.is_detached() => Stopping::one(work.stop(cause), None),
                _ => self
                    .stop_left(id, &cause, &awake.scope)
                    .unwrap_or_else(|| nothing(StopOutcome::NotFound)),
            },
        }
    }

    /// Combines the stop of a turn with a stop of the session's hooks that the turn waits for before it begins;
    /// otherwise the ending of the turn would wait for the hooks.
    fn with_hooks(
        &self,
        slot: &Slot,
        awake: &Awake,
        stop: Stopping,
        target: &StopTarget,
    ) -> Stopping {
        match &awake.hooks {
            Some(hooks) if !slot.state.has_begun() => {
                let cause = stop.request().cause.clone();
                let hooks = hooks.stop(StopOrder::new(target.extent(), cause.clone()));
                let parts = vec![stop, Stopping::one(hooks, None)];
                Stopping::parts(self.request(target, cause), parts)
            }
            _ => stop,
        }
    }

    /// Stops all background work and opens a new scope for work of later turns. Joins earlier stops that have not
    /// ended. Returns nothing if there is no background work; with the stop of a turn the scope is stopped in any case,
    /// so that no work can start in between.
    fn stop_background(&self, cause: &Cause, beside_turn: bool) -> Vec<Stopping> {
        let mut inner = self.inner.lock();
        let Some(awake) = inner.awake.as_mut() else {
            return Vec::new();
        };
        awake.being_stopped.retain(|scope| !scope.is_quiet());
        let mut scopes = awake.being_stopped.clone();
        let old = awake.background_scope.clone();
        if !old.is_quiet() || beside_turn {
            scopes.push(old.clone());
            // In one critical section: two concurrent stops each have a scope to stop. If the session itself is being
            // stopped, there are no later turns.
            if let Ok(fresh) = self.background_scope(&awake.scope) {
                if let Some(background) = &awake.background {
                    background.reopen(fresh.clone());
                }
                awake.background_scope = fresh;
                awake.being_stopped.push(old);
            }
        }
        drop(inner);
        let order = || StopOrder::new(Extent::TurnAndBackground, cause.clone());
        let stop = |scope: Scope| Stopping::one(scope.stop(order()), None);
        scopes.into_iter().map(stop).collect()
    }

    /// Closes a sleeping session, which has no work. `None` if the session is awake.
    fn close_asleep(&self, cause: &Cause) -> Option<Stopping> {
        let mut inner = self.inner.lock();
        if inner.awake.is_some() {
            return None;
        }
        inner.desk.close();
        drop(inner);
        self.hub.close();
        drop(self.ended.set(()));
        let request = self.request(&StopTarget::Session, cause.clone());
        let found = Receipt::of_stop(request, StopFindings::default());
        Some(Stopping::answered(found))
    }

    /// Dry run of a stop of the target.
    pub(crate) fn preview(&self, target: &StopTarget, cause: Cause) -> Receipt {
        let inner = self.inner.lock();
        let scopes = match target {
            StopTarget::Process => vec![self.host.scope.clone()],
            _ => scopes_of(&inner, target),
        };
        let bystander = match (target, &inner.awake) {
            (StopTarget::Turn | StopTarget::Message(_), Some(awake)) => {
                Some(awake.background_scope.clone())
            }
            _ => None,
        };
        drop(inner);
        let running = scopes.iter().flat_map(Scope::running);
        let left = self.preview_left(target);
        let items = running.chain(left).collect();
        let receipt = Receipt::of_preview(self.request(target, cause), items);
        let outside = bystander.map(|scope| scope.running()).unwrap_or_default();
        receipt.with_bystanders(outside)
    }

    pub(crate) fn nothing(
        &self,
        target: &StopTarget,
        cause: Cause,
        outcome: StopOutcome,
    ) -> Stopping {
        let mut request = self.request(target, cause);
        // The session itself exists: its last turn has ended.
        let last = self.inner.lock().known.last_turn;
        if let (StopTarget::Turn | StopTarget::TurnAndBackground, 1..) = (target, last.0) {
            request.target = format!("{}/turn/{last}", self.label()).into();
        }
        Stopping::answered(Receipt::of_nothing(request, outcome))
    }

    pub(crate) fn request(&self, target: &StopTarget, cause: Cause) -> StopRequest {
        // The host's scope provides the clock and the ids.
        let preview = self.host.scope.preview(target.extent(), cause);
        let label = self.label();
        StopRequest {
            target: match target {
                StopTarget::Session | StopTarget::Turn | StopTarget::TurnAndBackground => label,
                StopTarget::Process => self.host.scope.label().to_string(),
                StopTarget::Call(id) => format!("{label}/call/{id}"),
                StopTarget::Background(id) => format!("{label}/{id}"),
                StopTarget::Message(id) => format!("{label}/message/{id}"),
            }
            .into(),
            ..preview.request().clone()
        }
    }
}

fn work(awake: &Awake, id: &BackgroundId) -> Option<Arc<BackgroundWork>> {
    let works = awake.background.as_ref()?.works();
    works.into_iter().find(|work| work.id == *id)
}

/// Scopes of background work: the current one, and those whose stop has not ended.
fn background_scopes(awake: &Awake) -> impl Iterator<Item = &Scope> {
    awake.being_stopped.iter().chain([&awake.background_scope])
}

/// Scope of a call of a background sub-agent, by its path.
fn behind(awake: &Awake, id: &CallId) -> Option<Scope> {
    let path = id.as_str().contains('/').then(|| id.as_str())?;
    background_scopes(awake).find_map(|scope| scope.find_unit(path))
}

/// Scope of a call of these turns, or of a call that has moved to the background. The turns first: a moving call
/// appears in the background before it leaves the turn, where it may remain listed as ended.
fn call_scope<'a>(
    awake: &Awake,
    mut turns: impl Iterator<Item = &'a Arc<Slot>>,
    id: &CallId,
) -> Option<Scope> {
    let is_there = |scope: &Scope| scope.check().is_ok() || !scope.is_quiet();
    match turns.find_map(|slot| slot.controls.call(id)) {
        Some(scope) if is_there(&scope) => Some(scope),
        ended => behind(awake, id).or(ended),
    }
}

impl Inner {
    /// Slot of a message that has not ended, or of the last message that has; and the slot of the running turn, if the
    /// message was handed to that turn.
    fn slot_of(&self, id: &MessageId) -> Option<(Arc<Slot>, Option<Arc<Slot>>)> {
        let is_it = |slot: &Arc<Slot>| slot.message() == Some(id);
        let own = self.desk.all().chain(&self.last).find(|slot| is_it(slot))?;
        let handed = self.desk.was_handed(is_it);
        let taken_by = self.desk.running().filter(|_| handed).cloned();
        Some((Arc::clone(own), taken_by))
    }
}

fn scopes_of(inner: &Inner, target: &StopTarget) -> Vec<Scope> {
    let Some(awake) = &inner.awake else {
        return Vec::new();
    };
    let running = || inner.desk.running().map(|slot| slot.scope.clone());
    match target {
        StopTarget::Session | StopTarget::Process => vec![awake.scope.clone()],
        StopTarget::Turn => running().into_iter().collect(),
        StopTarget::TurnAndBackground => {
            let beside = background_scopes(awake).chain(&awake.hooks).cloned();
            running().into_iter().chain(beside).collect()
        }
        StopTarget::Call(id) => {
            let turns = inner.desk.running().into_iter().chain(&inner.last);
            call_scope(awake, turns, id).into_iter().collect()
        }
        StopTarget::Message(id) => {
            let slot = inner.slot_of(id).map(|(own, taken_by)| match taken_by {
                Some(turn) if turn.controls.has_taken(id) => turn,
                _ => own,
            });
            slot.map(|slot| slot.scope.clone()).into_iter().collect()
        }
        StopTarget::Background(id) => {
            let work = work(awake, id).into_iter();
            work.map(|work| work.scope().clone()).collect()
        }
    }
}
