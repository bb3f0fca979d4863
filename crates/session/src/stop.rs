//! Stops of parts of a session, from any handle: accepted at once, in every state of the owner.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{NothingToStop, ReceiptItem, StopFindings, StopInfo};
use allstop_core::{CallId, Cause, Extent, MessageId, Receipt};
use allstop_scope::{Scope, StopRequest};
use allstop_tools::{BackgroundHost as _, BackgroundWork};

use crate::inner::{AwakeSession, LockedState, SessionInner};
use crate::queued_turn::QueuedTurn;
use crate::stop_handle::{SessionStop, StopTarget, add_outside};

impl SessionInner {
    /// Stops a target. On return no further work of the target starts.
    pub(crate) fn stop(self: &Arc<Self>, target: &StopTarget, cause: Cause) -> SessionStop {
        let stop = match target {
            StopTarget::AllWork => self.stop_all_work(&cause),
            _ => self.stop_own(target, cause),
        };
        if covers_orphans(target) {
            stop
        } else {
            stop.beside(self.orphan_items())
        }
    }

    /// A receipt of a turn, with the orphaned work beside it: no scope knows of that.
    pub(crate) fn name_orphans(&self, receipt: Arc<Receipt>) -> Arc<Receipt> {
        add_outside(receipt, &self.orphan_items())
    }

    /// Orphaned work, as items of receipts that do not cover it. State as of the last check.
    fn orphan_items(&self) -> Vec<ReceiptItem> {
        let works = self.orphaned_work().into_iter();
        let running = works.filter_map(|work| self.preview_orphan(&work.id));
        running.collect()
    }

    /// Stops a target in this process, or one piece of background work.
    fn stop_own(self: &Arc<Self>, target: &StopTarget, cause: Cause) -> SessionStop {
        let mut state = self.state.lock();
        let ends_session = matches!(target, StopTarget::Session | StopTarget::Process);
        if ends_session && state.awake.is_some() {
            // In the same critical section that reads `awake`: the owner that exists now will end the session.
            state.queue.close();
        }
        let (running, last) = (state.queue.running().cloned(), state.last.clone());
        let next = state.next_turn().cloned();
        let awake = state.awake.clone();
        let had_turns = state.position.last_turn.0 > 0;
        let named = match target {
            StopTarget::Message(id) => state.queued_turn_of(id),
            _ => None,
        };
        drop(state);
        let nothing_to_stop = |outcome| self.nothing_to_stop(target, cause.clone(), outcome);
        let ended = if had_turns {
            NothingToStop::AlreadyEnded
        } else {
            NothingToStop::NotFound
        };
        let Some(awake) = awake else {
            return nothing_to_stop(match target {
                StopTarget::Background(id) => {
                    return self
                        .stop_orphan(id, &cause, &self.host.scope)
                        .unwrap_or_else(|| nothing_to_stop(NothingToStop::NotFound));
                }
                StopTarget::Call(_) | StopTarget::Message(_) => NothingToStop::NotFound,
                StopTarget::Process => {
                    let order = StopRequest::new(target.extent(), cause);
                    return SessionStop::one(self.host.scope.stop(order), None);
                }
                StopTarget::Session if self.ended.get().is_none() => {
                    return match self.close_asleep(&cause) {
                        Some(closed) => closed,
                        // The session has woken up meanwhile.
                        None => self.stop_own(target, cause),
                    };
                }
                _ => ended,
            });
        };
        let stop_turn = |queued: &QueuedTurn, bystander: Option<&Scope>| {
            let stop = queued.stop(cause.clone(), bystander);
            let stop = SessionStop::one(stop, Some(Arc::clone(&queued.state)));
            self.with_hooks(queued, &awake, stop, target)
        };
        match target {
            StopTarget::Call(id) => match call_scope(&awake, running.iter().chain(&last), id) {
                Some(scope) => {
                    SessionStop::one(scope.stop(StopRequest::new(target.extent(), cause)), None)
                }
                None => nothing_to_stop(NothingToStop::NotFound),
            },
            StopTarget::Turn => match next.or(last) {
                Some(queued) => stop_turn(&queued, Some(&awake.background_scope)),
                None => nothing_to_stop(ended),
            },
            StopTarget::Message(id) => match named {
                Some((own, taken_by)) => {
                    let queued = match &taken_by {
                        // The message is a part of that turn. If the turn puts it back, the message itself is stopped
                        // as well.
                        Some(turn) if !turn.controls.withdraw(id) => {
                            drop(own.stop(cause.clone(), None));
                            turn
                        }
                        _ => &own,
                    };
                    stop_turn(queued, Some(&awake.background_scope))
                }
                None => nothing_to_stop(NothingToStop::NotFound),
            },
            StopTarget::TurnAndBackground | StopTarget::AllWork => {
                // The turn first: background work that its calls start now is refused, or is found below.
                let turn = next.map(|queued| stop_turn(&queued, None));
                let background = self.stop_background(&cause, turn.is_some());
                let mut parts: Vec<_> = turn.into_iter().chain(background).collect();
                // Hooks that run after the last turn.
                let hooks = awake.hooks.filter(|hooks| !hooks.is_stopped());
                let stop =
                    |hooks: Scope| hooks.stop(StopRequest::new(target.extent(), cause.clone()));
                parts.extend(hooks.map(|hooks| SessionStop::one(stop(hooks), None)));
                if parts.is_empty() {
                    return nothing_to_stop(ended);
                }
                SessionStop::parts(self.request(target, cause), parts)
            }
            StopTarget::Session | StopTarget::Process => {
                let scope = match target {
                    StopTarget::Process => &self.host.scope,
                    _ => &awake.scope,
                };
                let stop = scope.stop(StopRequest::new(target.extent(), cause));
                self.changed.notify_one();
                SessionStop::one(stop, running.map(|queued| Arc::clone(&queued.state)))
            }
            StopTarget::Background(id) => match work(&awake, id) {
                Some(work) if !work.is_detached() => SessionStop::one(work.stop(cause), None),
                _ => self
                    .stop_orphan(id, &cause, &awake.scope)
                    .unwrap_or_else(|| nothing_to_stop(NothingToStop::NotFound)),
            },
        }
    }

    /// Combines the stop of a turn with a stop of the session's hooks that the turn waits for before it begins;
    /// otherwise the ending of the turn would wait for the hooks.
    fn with_hooks(
        &self,
        queued: &QueuedTurn,
        awake: &AwakeSession,
        stop: SessionStop,
        target: &StopTarget,
    ) -> SessionStop {
        match &awake.hooks {
            Some(hooks) if !queued.state.has_begun() => {
                let cause = stop.request().cause.clone();
                let hooks = hooks.stop(StopRequest::new(target.extent(), cause.clone()));
                let parts = vec![stop, SessionStop::one(hooks, None)];
                SessionStop::parts(self.request(target, cause), parts)
            }
            _ => stop,
        }
    }

    /// Stops all background work and opens a new scope for work of later turns. Joins earlier stops that have not
    /// ended. Returns nothing if there is no background work; with the stop of a turn the scope is stopped in any case,
    /// so that no work can start in between.
    fn stop_background(&self, cause: &Cause, beside_turn: bool) -> Vec<SessionStop> {
        let mut state = self.state.lock();
        let Some(awake) = state.awake.as_mut() else {
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
        drop(state);
        let order = || StopRequest::new(Extent::TurnAndBackground, cause.clone());
        let stop = |scope: Scope| SessionStop::one(scope.stop(order()), None);
        scopes.into_iter().map(stop).collect()
    }

    /// Closes a sleeping session, which has no work. `None` if the session is awake.
    fn close_asleep(&self, cause: &Cause) -> Option<SessionStop> {
        let mut state = self.state.lock();
        if state.awake.is_some() {
            return None;
        }
        state.queue.close();
        drop(state);
        self.hub.close();
        drop(self.ended.set(()));
        let request = self.request(&StopTarget::Session, cause.clone());
        let found = Receipt::of_stop(request, StopFindings::default());
        Some(SessionStop::answered(found))
    }

    /// Stops the turn, its background work, and work that runs without this process.
    fn stop_all_work(self: &Arc<Self>, cause: &Cause) -> SessionStop {
        // Work without an owner first: when the turn has ended, its caller may close the session at once.
        let stop = |id| self.stop_own(&StopTarget::Background(id), cause.clone());
        let before = self.work_without_owner();
        let mut parts: Vec<_> = before.iter().cloned().map(stop).collect();
        let own = self.stop_own(&StopTarget::AllWork, cause.clone());
        // Work that was detached meanwhile.
        let mut late = self.work_without_owner();
        late.retain(|id| !before.contains(id));
        parts.extend(late.into_iter().map(stop));
        if parts.is_empty() {
            return own;
        }
        let is_answered = own.is_answered();
        let request = own.request().clone();
        if !is_answered {
            parts.insert(0, own);
        }
        SessionStop::parts(request, parts)
    }

    /// Background work that was detached, or that an earlier process left running.
    fn work_without_owner(&self) -> Vec<BackgroundId> {
        let detached = self.background().map_or_else(Vec::new, |all| all.works());
        let detached = detached.into_iter().filter(|work| work.is_detached());
        let orphans = self.orphaned_work().into_iter();
        let mut ids: Vec<_> = detached
            .map(|work| work.id.clone())
            .chain(orphans.filter(|work| work.alive).map(|work| work.id))
            .collect();
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        ids
    }

    /// Dry run of a stop of the target.
    pub(crate) fn preview(&self, target: &StopTarget, cause: Cause) -> Receipt {
        let state = self.state.lock();
        let scopes = match target {
            StopTarget::Process => vec![self.host.scope.clone()],
            _ => scopes_of(&state, target),
        };
        let bystander = match (target, &state.awake) {
            (StopTarget::Turn | StopTarget::Message(_), Some(awake)) => {
                Some(awake.background_scope.clone())
            }
            _ => None,
        };
        drop(state);
        let running = scopes.iter().flat_map(Scope::running);
        let left = match target {
            StopTarget::AllWork => self.work_without_owner(),
            StopTarget::Background(id) => vec![id.clone()],
            _ => Vec::new(),
        };
        let left = left.iter().filter_map(|id| self.preview_orphan(id));
        let items: Vec<_> = running.chain(left).collect();
        let is_one = matches!(
            target,
            StopTarget::Call(_) | StopTarget::Background(_) | StopTarget::Message(_)
        );
        if is_one && items.is_empty() {
            let request = self.request(target, cause);
            return Receipt::of_nothing(request, NothingToStop::NotFound).as_preview();
        }
        let receipt = Receipt::of_preview(self.request(target, cause), items);
        let outside = bystander.map(|scope| scope.running()).unwrap_or_default();
        let receipt = receipt.with_outside_items(outside);
        if covers_orphans(target) {
            receipt
        } else {
            Receipt::clone(&self.name_orphans(Arc::new(receipt)))
        }
    }

    pub(crate) fn nothing_to_stop(
        &self,
        target: &StopTarget,
        cause: Cause,
        outcome: NothingToStop,
    ) -> SessionStop {
        let mut request = self.request(target, cause);
        // The session itself exists: its last turn has ended.
        let last = self.state.lock().position.last_turn;
        let of_turn = matches!(
            target,
            StopTarget::Turn | StopTarget::TurnAndBackground | StopTarget::AllWork
        );
        if of_turn && last.0 > 0 {
            request.target = format!("{}/turn/{last}", self.label()).into();
        }
        SessionStop::answered(Receipt::of_nothing(request, outcome))
    }

    pub(crate) fn request(&self, target: &StopTarget, cause: Cause) -> StopInfo {
        // The host's scope provides the clock and the ids.
        let preview = self.host.scope.preview(target.extent(), cause);
        let label = self.label();
        StopInfo {
            target: match target {
                StopTarget::Session
                | StopTarget::Turn
                | StopTarget::TurnAndBackground
                | StopTarget::AllWork => label,
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

/// True if a stop of the target covers orphaned work, or is of one piece of work, which has no other beside it.
fn covers_orphans(target: &StopTarget) -> bool {
    matches!(
        target,
        StopTarget::AllWork | StopTarget::Background(_) | StopTarget::Call(_)
    )
}

fn work(awake: &AwakeSession, id: &BackgroundId) -> Option<Arc<BackgroundWork>> {
    let works = awake.background.as_ref()?.works();
    works.into_iter().find(|work| work.id == *id)
}

/// Scopes of background work: the current one, and those whose stop has not ended.
fn background_scopes(awake: &AwakeSession) -> impl Iterator<Item = &Scope> {
    awake.being_stopped.iter().chain([&awake.background_scope])
}

/// Scope of a call of a background sub-agent, by its path.
fn background_call_scope(awake: &AwakeSession, id: &CallId) -> Option<Scope> {
    let path = id.as_str().contains('/').then(|| id.as_str())?;
    background_scopes(awake).find_map(|scope| scope.find_unit(path))
}

/// Scope of a call of these turns, or of a call that has moved to the background. The turns first: a moving call
/// appears in the background before it leaves the turn, where it may remain listed as ended.
fn call_scope<'a>(
    awake: &AwakeSession,
    mut turns: impl Iterator<Item = &'a Arc<QueuedTurn>>,
    id: &CallId,
) -> Option<Scope> {
    let is_there = |scope: &Scope| scope.check().is_ok() || !scope.is_quiet();
    match turns.find_map(|queued| queued.controls.call(id)) {
        Some(scope) if is_there(&scope) => Some(scope),
        ended => background_call_scope(awake, id).or(ended),
    }
}

impl LockedState {
    /// Running turn, or else the first waiting turn.
    fn next_turn(&self) -> Option<&Arc<QueuedTurn>> {
        self.queue.all().next()
    }

    /// Turn of a message that has not ended, or of the last message that has; and the running turn, if the
    /// message was handed to that turn.
    fn queued_turn_of(&self, id: &MessageId) -> Option<(Arc<QueuedTurn>, Option<Arc<QueuedTurn>>)> {
        let is_it = |queued: &Arc<QueuedTurn>| queued.message() == Some(id);
        let own = self
            .queue
            .all()
            .chain(&self.last)
            .find(|queued| is_it(queued))?;
        let handed = self.queue.has_steered(is_it);
        let taken_by = self.queue.running().filter(|_| handed).cloned();
        Some((Arc::clone(own), taken_by))
    }
}

fn scopes_of(state: &LockedState, target: &StopTarget) -> Vec<Scope> {
    let Some(awake) = &state.awake else {
        return Vec::new();
    };
    // A turn that has not begun waits for the session's hooks: a stop of the turn stops them as well.
    let turn_scopes = |turn: &Arc<QueuedTurn>| {
        let hooks = awake.hooks.iter().filter(|_| !turn.state.has_begun());
        [&turn.scope].into_iter().chain(hooks).cloned().collect()
    };
    match target {
        StopTarget::Session | StopTarget::Process => vec![awake.scope.clone()],
        StopTarget::Turn => state.next_turn().map_or_else(Vec::new, turn_scopes),
        StopTarget::TurnAndBackground | StopTarget::AllWork => {
            let beside = background_scopes(awake).chain(&awake.hooks).cloned();
            let turn = state.next_turn().map(|turn| turn.scope.clone());
            turn.into_iter().chain(beside).collect()
        }
        StopTarget::Call(id) => {
            let turns = state.queue.running().into_iter().chain(&state.last);
            call_scope(awake, turns, id).into_iter().collect()
        }
        StopTarget::Message(id) => {
            let named = state.queued_turn_of(id);
            let turn = named.map(|(own, taken_by)| match taken_by {
                Some(turn) if turn.controls.has_taken(id) => turn,
                _ => own,
            });
            turn.as_ref().map_or_else(Vec::new, turn_scopes)
        }
        StopTarget::Background(id) => {
            let work = work(awake, id).into_iter();
            work.map(|work| work.scope().clone()).collect()
        }
    }
}
