//! Acceptance of stops by a scope. A stop walks from its target through the scopes below, and covers each of them. A
//! second stop joins the first one. The engine (the task that drives a scope) acknowledges the stop. An account is the
//! receipt for one part of a wider stop.

use std::sync::Arc;

use allstop_core::Cause;
use smallvec::SmallVec;

use super::entry::Engine;
use super::{EndedWork, GroupState, Node, ScopeIndex, StopInProgress};
use crate::sync::{CancellationToken, ProcessHandle};
use crate::work::Force;

/// Role of a scope in a stop that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The stop was requested for this scope. The scope decides whether the stop joins another stop or ends early.
    Target,
    /// Like [`Role::Target`], but the barrier was already closed, and work still runs in the scope.
    ClosedTarget,
    /// One of several targets. The caller decides whether the stop joins another stop or ends early. But if the turn of
    /// the scope has committed, the scope reports that.
    JointTarget,
    /// A scope below the target. This is also the role of the scope of an account, if a wider stop already covers the
    /// scope.
    Below,
}

/// Answer of a scope to a stop that was requested for it.
pub(crate) enum Accepted {
    /// The stop now covers the scope.
    Covered,
    /// This stop already covers the scope, because the scope was moved during the walk.
    CoveredBefore,
    /// The scope can no longer be stopped, because its turn committed first.
    Committed,
    /// A running stop already covers the scope. The new stop must join it.
    Join(Arc<StopInProgress>),
    /// The barrier was closed before the stop, and no stop is running. The scope may have ended.
    Closed,
}

/// Nodes, tokens and work that the walk of a stop has found but not handled yet. Drop this value outside of every lock.
#[derive(Default)]
pub(crate) struct StopWorklist {
    /// Scopes whose barrier is still open.
    pub(crate) below: Vec<Node>,
    pub(crate) tokens: Vec<CancellationToken>,
    /// Running processes. A process that is being launched is not in the list: the code that launches the process also
    /// asks it to stop.
    pub(crate) processes: Vec<ProcessHandle>,
    pub(crate) remotes: Vec<Arc<dyn Fn() + Send + Sync>>,
}

impl Node {
    /// Closes the barrier of this scope, and of the scopes below it in its group, because of a stop. The same step
    /// counts the work to wait for, and lists the work to ask and the groups below.
    pub(crate) fn accept(
        &self,
        stop: &Arc<StopInProgress>,
        cause: &Cause,
        role: Role,
        worklist: &mut StopWorklist,
    ) -> Accepted {
        let mut state = self.group.state.lock();
        let GroupState {
            entries,
            work,
            ended,
            asked,
            ..
        } = &mut *state;
        let own = entries.get(self.index);
        if own.stops.iter().any(|own| Arc::ptr_eq(own, stop)) {
            return Accepted::CoveredBefore;
        }
        if matches!(role, Role::Target | Role::ClosedTarget) {
            // Ignores accounts, because an account neither asks nor forces work.
            let mut covering = entries.upwards(self.index).flat_map(|entry| &entry.stops);
            if let Some(running) = covering.find(|stop| !stop.is_done() && !stop.is_part()) {
                return Accepted::Join(Arc::clone(running));
            }
        }
        if role == Role::Target && entries.check(self.index).is_err() {
            return Accepted::Closed;
        }
        if let Some(decision) = &own.decision
            && !decision.stop(cause.clone())
            && decision.stopped_by().is_none()
            && role != Role::Below
        {
            return Accepted::Committed;
        }
        for index in entries.below(self.index) {
            let entry = entries.get(index);
            if index != self.index
                && let Some(decision) = &entry.decision
            {
                decision.stop(cause.clone());
            }
            if entry.barrier.waits()
                && entries.cause(index).is_none()
                && let Some(unit) = &entry.unit
                && unit.is_call()
            {
                ended.push(EndedWork::not_begun(unit, index));
            }
            worklist.tokens.extend(entry.token.clone());
        }
        if entries.cause(self.index).is_none() {
            entries.get_mut(self.index).barrier.accept_stop(cause);
        }
        let live = entries.live(self.index);
        stop.count().more(usize::from(live > 0));
        // Drops records of work that ended under an earlier stop of only that work's scope, if this earlier stop is
        // already answered.
        ended.retain(|ended| entries.is_asked_for(ended.index));
        if ended.is_empty() {
            // Most scopes have either one piece of work or many. Without this line, the vector would reserve space for
            // four.
            ended.reserve_exact(live);
        }
        if *asked > 0 {
            for (_, entry) in work.iter() {
                if !entries.is_below(entry.index, self.index) {
                    continue;
                }
                match &entry.force {
                    Force::Process(process) => worklist.processes.push(process.clone()),
                    Force::Remote(ask) => worklist.remotes.push(Arc::clone(ask)),
                    _ => {}
                }
            }
        }
        let own = entries.get_mut(self.index);
        own.keep_stop(Arc::clone(stop), |stop| stop.is_of(self));
        worklist.below.extend(state.children(self.index));
        // The scopes of a group share one signal, so the signal alone does not mean that this scope is covered. The
        // entry of each scope records whether a stop covers the scope and has been announced.
        self.group.signal.set();
        Accepted::Covered
    }

    /// The running stops that cover this scope. Accounts are not included, because an account neither asks nor forces
    /// work.
    pub(crate) fn running_stops(&self) -> Vec<Arc<StopInProgress>> {
        let state = self.group.state.lock();
        let covering = state.entries.upwards(self.index);
        let covering = covering.flat_map(|entry| &entry.stops);
        let running = covering.filter(|stop| !stop.is_done() && !stop.is_part());
        running.cloned().collect()
    }

    /// The stop that covers this scope. The scope's own stop comes first, then the nearest running stop, then the
    /// nearest stop that has ended.
    pub(crate) fn covering_stop(&self) -> Option<Arc<StopInProgress>> {
        let state = self.group.state.lock();
        let covering = || {
            state
                .entries
                .upwards(self.index)
                .flat_map(|entry| &entry.stops)
        };
        let own = covering().find(|stop| stop.is_of(self));
        let running = || covering().find(|stop| !stop.is_done());
        own.or_else(running).or_else(|| covering().next()).cloned()
    }

    /// True after a stop that covers this scope has been announced. From then on, every scope that the stop covers has
    /// its cause.
    pub(crate) fn is_stopped(&self) -> bool {
        let signal = &self.group.signal;
        signal.is_set_for_all()
            || signal.is_set() && self.group.state.lock().entries.is_stopped(self.index)
    }

    /// Resolves when a stop covers this scope.
    pub(crate) async fn stopped(&self) {
        self.group.signal.wait_for(|| self.is_stopped()).await;
    }

    /// Wakes all waiters of this group after a stop of this scope has been announced. A waiter whose scope is not
    /// covered by the stop continues to wait.
    pub(crate) fn wake(&self) {
        if self.index == ScopeIndex::FIRST {
            self.group.signal.set_for_all();
        } else {
            self.group.signal.wake();
        }
    }

    /// Registers an engine of this scope. A stop also waits until the engine has acknowledged. Until then, the stop
    /// lists the engine.
    pub(crate) fn attach_engine(&self) {
        let seq = self.env().next_seq();
        let entries = &mut self.group.state.lock().entries;
        if entries.get(self.index).engine == Engine::None && entries.register(self.index).is_ok() {
            entries.get_mut(self.index).engine = Engine::Attached(seq);
        }
    }

    /// Records that the engine has observed the stop or has ended.
    pub(crate) fn engine_done(&self) {
        let mut state = self.group.state.lock();
        let entries = &mut state.entries;
        let entry = entries.get_mut(self.index);
        if !matches!(entry.engine, Engine::Attached(_)) {
            return;
        }
        entry.engine = Engine::Done;
        let waiting = std::mem::take(&mut entry.late_stops);
        entries.finish(self.index);
        entries.ended_one(self.index);
        drop(state);
        for stop in waiting {
            stop.count().decrement();
        }
    }

    /// Makes `stop` wait for all engines here and below that have not acknowledged. `stop` came after the end or the
    /// commit of its target.
    pub(crate) fn watch_engines(&self, stop: &Arc<StopInProgress>) {
        let mut nodes = vec![self.clone()];
        while let Some(node) = nodes.pop() {
            let mut state = node.group.state.lock();
            let indices: SmallVec<[ScopeIndex; 4]> = state.entries.below(node.index).collect();
            for index in indices {
                let entry = state.entries.get_mut(index);
                if matches!(entry.engine, Engine::Attached(_)) {
                    stop.count().more(1);
                    entry.late_stops.push(Arc::clone(stop));
                }
            }
            let children: Vec<_> = state.children(node.index).collect();
            drop(state);
            nodes.extend(children);
        }
    }
}
