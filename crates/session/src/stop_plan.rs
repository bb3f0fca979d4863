//! Plan of a stop: the work that the stop covers, and the work outside. One step computes the plan from the state of
//! the session.
//!
//! A preview shows the plan. A stop holds the lock while the plan is computed and accepted, so the state cannot change
//! in between.

use std::sync::Arc;

use allstop_core::ids::BackgroundId;
use allstop_core::receipt::{NothingToStop, ReceiptItem};
use allstop_core::{CallId, Extent, MessageId};
use allstop_scope::Scope;
use allstop_tools::{BackgroundHost as _, BackgroundWork};

use crate::inner::{AwakeSession, LockedState, SessionInner};
use crate::orphan_scan::OrphanedWork;
use crate::queued_turn::QueuedTurn;

/// Target of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// One call of the running turn. The turn continues, and the model receives a result. A call of a sub-agent is
    /// named as in receipts: by the path of the calls that contain it, such as `call_1/call_2`.
    Call(CallId),
    /// The running turn, or else the first waiting turn. A requested compaction ends, running or waiting. Background
    /// work and other waiting messages continue.
    Turn,
    /// The turn and all background work, including work that runs without this process because it was detached or an
    /// earlier process left it running. Other waiting messages continue.
    TurnAndBackground,
    /// The whole session. It accepts no more messages until it is opened again.
    Session,
    /// Everything below the host's scope: all sessions of the process, and shared parts such as MCP servers.
    Process,
    /// One piece of background work: a shell, or a sub-agent with all its work.
    Background(BackgroundId),
    /// The turn of one message, running or waiting. If the message was handed to the running turn, the message is
    /// withdrawn and ends alone. If the running turn has already taken the message, that turn is stopped, and the
    /// receipt names that turn.
    Message(MessageId),
    /// The turn of one message, and all background work that the turn has started, including work that an earlier
    /// process left running.
    MessageWork(MessageId),
}

impl StopTarget {
    /// Extent of the stop in receipts: the kind of work that the stop covers.
    pub fn extent(&self) -> Extent {
        match self {
            Self::Call(_) => Extent::Call,
            Self::Turn | Self::Message(_) => Extent::Turn,
            Self::TurnAndBackground => Extent::TurnAndBackground,
            Self::Session => Extent::Session,
            Self::Process => Extent::Process,
            Self::Background(_) | Self::MessageWork(_) => Extent::Subtree,
        }
    }
}

/// The work that a stop of a target covers, and the work outside the extent of the stop.
pub(crate) struct StopPlan {
    /// Name of the target in the receipt.
    pub(crate) target: Arc<str>,
    pub(crate) extent: Extent,
    /// Scopes that the stop covers. Unused background scopes are left out.
    pub(crate) scopes: Vec<Scope>,
    /// Orphaned work (background work that runs without this process) that the stop covers.
    pub(crate) left: Vec<BackgroundId>,
    /// Item for processes of the extent that an unfinished search could not account for.
    pub(crate) unsearched: Option<ReceiptItem>,
    /// The turn that the stop ends.
    pub(crate) turn: Option<Arc<QueuedTurn>>,
    /// Scopes outside the extent. The receipt also lists the work in these scopes.
    pub(crate) bystanders: Vec<Scope>,
    /// Receipt items for work outside the extent that is in no scope.
    pub(crate) outside: Vec<ReceiptItem>,
    /// The answer if the stop covers no work.
    pub(crate) nothing: NothingToStop,
}

impl StopPlan {
    /// True if the stop covers no work.
    pub(crate) fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.left.is_empty() && self.unsearched.is_none()
    }
}

impl SessionInner {
    /// Computes the plan of a stop.
    pub(crate) fn plan(&self, state: &LockedState, target: &StopTarget) -> StopPlan {
        let label = self.label();
        let had_turns = state.position.last_turn.0 > 0;
        let mut plan = StopPlan {
            target: label.as_str().into(),
            extent: target.extent(),
            scopes: Vec::new(),
            left: Vec::new(),
            unsearched: None,
            turn: None,
            bystanders: Vec::new(),
            outside: Vec::new(),
            nothing: if had_turns {
                NothingToStop::AlreadyEnded
            } else {
                NothingToStop::NotFound
            },
        };
        match target {
            StopTarget::Call(id) => {
                plan.nothing = NothingToStop::NotFound;
                plan.target = format!("{label}/call/{id}").into();
                let turns = state.queue.running().into_iter().chain(&state.last);
                let found = state.awake.as_ref();
                let found = found.and_then(|awake| call_scope(awake, turns, id));
                plan.scopes.extend(found);
            }
            StopTarget::Background(id) => {
                plan.nothing = NothingToStop::NotFound;
                plan.target = format!("{label}/{id}").into();
                plan.cover_background(state, id);
            }
            StopTarget::Turn => {
                let turn = state.next_turn().or(state.last.as_ref());
                plan.cover_turn(state, turn);
            }
            StopTarget::Message(id) => {
                plan.nothing = NothingToStop::NotFound;
                plan.target = format!("{label}/message/{id}").into();
                plan.cover_message(state, id);
            }
            StopTarget::MessageWork(id) => {
                plan.nothing = NothingToStop::AlreadyEnded;
                plan.cover_message(state, id);
                plan.leave_ended_turn();
                plan.cover_background_of(state, id);
                plan.target = format!("{label}/message/{id}").into();
            }
            StopTarget::TurnAndBackground => {
                plan.cover_turn(state, state.next_turn());
                plan.cover_all_background(state);
                plan.target = label.as_str().into();
            }
            StopTarget::Session => {
                let awake = state.awake.iter();
                plan.scopes.extend(awake.map(|awake| awake.scope.clone()));
                plan.turn = state.next_turn().cloned();
            }
            StopTarget::Process => {
                plan.target = self.host.scope.label();
                plan.scopes.push(self.host.scope.clone());
                plan.turn = state.next_turn().cloned();
            }
        }
        let is_of_turn = matches!(target, StopTarget::Turn | StopTarget::TurnAndBackground);
        if plan.is_empty() && is_of_turn && had_turns {
            // No turn runs or waits, so the stop came after the end of the last turn. The receipt names that turn.
            plan.target = format!("{label}/turn/{}", state.position.last_turn).into();
        }
        let names_others = matches!(
            target,
            StopTarget::Turn | StopTarget::Message(_) | StopTarget::Session | StopTarget::Process
        );
        if names_others {
            plan.outside = state.orphan_items().collect();
        }
        plan
    }
}

impl StopPlan {
    /// Covers a turn, and the hooks that the turn waits for.
    fn cover_turn(&mut self, state: &LockedState, turn: Option<&Arc<QueuedTurn>>) {
        let (Some(awake), Some(turn)) = (&state.awake, turn) else {
            return;
        };
        self.target = turn.scope.label();
        self.scopes.push(turn.scope.clone());
        if !turn.state.has_begun() {
            self.scopes.extend(awake.hooks.clone());
        }
        self.turn = Some(Arc::clone(turn));
        self.bystanders.push(awake.background_scope.clone());
    }

    /// Covers the turn of a message, or the turn that has taken the message. If that turn returns the message to the
    /// queue, the message itself is stopped as well.
    fn cover_message(&mut self, state: &LockedState, id: &MessageId) {
        let Some((own, handed_to)) = state.queued_turn_of(id) else {
            return;
        };
        match handed_to.filter(|turn| turn.controls.has_taken(id)) {
            Some(turn) => {
                self.cover_turn(state, Some(&turn));
                self.scopes.push(own.scope.clone());
            }
            None => self.cover_turn(state, Some(&own)),
        }
    }

    /// Excludes a turn that already has its outcome. Otherwise the receipt for the turn's background work would include
    /// the usage of the turn.
    fn leave_ended_turn(&mut self) {
        let has_ended = |turn: &Arc<QueuedTurn>| turn.state.try_outcome().is_some();
        if self.turn.as_ref().is_some_and(has_ended) {
            self.turn = None;
            self.scopes.clear();
        }
    }

    /// Covers the background work that the turn of a message has started, or may still start.
    fn cover_background_of(&mut self, state: &LockedState, id: &MessageId) {
        self.bystanders.clear();
        let awake = state.awake.as_ref();
        let own = awake.and_then(|awake| awake.background_of(id));
        let may_start = self.turn.is_some();
        self.scopes
            .extend(own.filter(|own| may_start || !own.is_quiet()).cloned());
        let is_own = |work: &OrphanedWork| work.message.as_ref() == Some(id);
        self.left.extend(state.orphans_where(is_own));
        let unsearched = &state.orphans.unsearched;
        self.unsearched = unsearched.item().filter(|_| unsearched.contains(id));
    }

    fn cover_all_background(&mut self, state: &LockedState) {
        self.bystanders.clear();
        if let Some(awake) = &state.awake {
            let ending = awake.being_stopped.iter();
            self.scopes
                .extend(ending.filter(|scope| !scope.is_quiet()).cloned());
            let is_in_use = !awake.background_scope.is_quiet();
            // If a turn may still start work, the background scope is included even if it is not in use. The turn's
            // calls then cannot start more work during the stop.
            let turn = self.turn.as_ref();
            let may_start = turn.is_some_and(|turn| !turn.scope.is_stopped());
            if is_in_use || may_start {
                self.scopes.push(awake.background_scope.clone());
            }
            let hooks = awake.hooks.iter().filter(|hooks| !hooks.is_stopped());
            self.scopes.extend(hooks.cloned());
        }
        self.left.extend(state.orphans_where(|_| true));
        self.unsearched = state.orphans.unsearched.item();
    }

    fn cover_background(&mut self, state: &LockedState, id: &BackgroundId) {
        let watched = state.awake.as_ref().and_then(|awake| awake.work(id));
        match watched {
            Some(work) if !work.is_detached() => self.scopes.push(work.scope().clone()),
            _ if state.orphans.works().iter().any(|work| work.id == *id) => {
                self.left.push(id.clone());
            }
            _ => {}
        }
    }
}

impl AwakeSession {
    fn work(&self, id: &BackgroundId) -> Option<Arc<BackgroundWork>> {
        let works = self.background.as_ref()?.works();
        works.into_iter().find(|work| work.id == *id)
    }
}

/// Scope of a call of a background sub-agent, found by the path of the call.
fn background_call_scope(awake: &AwakeSession, id: &CallId) -> Option<Scope> {
    let path = id.as_str().contains('/').then(|| id.as_str())?;
    let mut scopes = awake.being_stopped.iter().chain([&awake.background_scope]);
    scopes.find_map(|scope| scope.find_unit(path))
}

/// Scope of a call of these turns, or of a call that has moved to the background. A call that moves to the background
/// is in both places for a moment, so the turns are searched first. If a turn lists the call only as ended, the scope
/// in the background counts.
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
    /// Returns the running turn, or else the first waiting turn.
    fn next_turn(&self) -> Option<&Arc<QueuedTurn>> {
        self.queue.all().next()
    }

    /// Returns the turn of a message that has not ended, or of the last ended message. The second value is the running
    /// turn, if the message was handed to that turn.
    fn queued_turn_of(&self, id: &MessageId) -> Option<(Arc<QueuedTurn>, Option<Arc<QueuedTurn>>)> {
        let is_it = |queued: &Arc<QueuedTurn>| queued.message() == Some(id);
        let own = self
            .queue
            .all()
            .chain(&self.last)
            .find(|queued| is_it(queued))?;
        let handed = self.queue.has_steered(is_it);
        let handed_to = self.queue.running().filter(|_| handed).cloned();
        Some((Arc::clone(own), handed_to))
    }

    /// Withdraws a message from the running turn, unless the turn has taken it.
    pub(crate) fn withdraw(&self, id: &MessageId) {
        if let Some((_, Some(turn))) = self.queued_turn_of(id) {
            let _taken_or_not = turn.controls.withdraw(id);
        }
    }

    /// Ids of the running orphaned work that satisfies `is_wanted`.
    fn orphans_where(
        &self,
        is_wanted: impl Fn(&OrphanedWork) -> bool,
    ) -> impl Iterator<Item = BackgroundId> {
        let works = self.orphans.works().into_iter();
        let running = works.filter(move |work| work.alive && is_wanted(work));
        running.map(|work| work.id)
    }

    /// Receipt items for orphaned work, for receipts of stops that do not cover this work. The items show the state at
    /// the last check.
    pub(crate) fn orphan_items(&self) -> impl Iterator<Item = ReceiptItem> {
        let works = self.orphans.works().into_iter();
        works
            .filter(|work| work.alive)
            .map(|work| work.running_item())
    }
}
