//! How a node stands to stops: being covered by one, joining one that runs, and the engine that has to acknowledge it.

use std::sync::Arc;

use allstop_core::Cause;

use super::Node;
use crate::process::ProcessHandle;
use crate::stop::StopInProgress;
use crate::sync::CancellationToken;
use crate::work::Force;

/// What a node is to a stop that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The stop was asked of it: here joining and ending early are decided.
    Target,
    /// The same, once it is known that something runs there behind a closed barrier.
    ShutTarget,
    /// It is below the target, or a part that a wider stop covers already.
    Below,
}

/// How a node stands to a stop that was asked of it.
pub(crate) enum Accepted {
    /// It is covered now.
    Covered,
    /// The same stop has reached it before, by another way: it moves.
    CoveredBefore,
    /// It can no longer be stopped: the commit was first.
    Committed,
    /// A stop that covers it runs: join it.
    Join(Arc<StopInProgress>),
    /// Its barrier was closed before, and no stop runs: it may have ended.
    Shut,
}

/// What the walk of a stop has reached and not dealt with: to be dropped outside of every lock.
#[derive(Default)]
pub(crate) struct Reached {
    /// Nodes whose barrier is still open.
    pub(crate) below: Vec<Arc<Node>>,
    pub(crate) tokens: Vec<CancellationToken>,
    /// A process that is being made at this moment is asked by its maker.
    pub(crate) processes: Vec<ProcessHandle>,
    pub(crate) remotes: Vec<Arc<dyn Fn() + Send + Sync>>,
}

/// Whether the engine that drives a scope has acknowledged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    #[default]
    None,
    /// It has not acknowledged. With its number among all work of the tree.
    Attached(u64),
    /// It heard the stop at a checkpoint, or had verifiably ended before.
    Done,
}

impl Node {
    /// Closes the barrier of this node for a stop, counts what it has to wait for, and lists what it has to ask and the
    /// nodes below, all in one step.
    pub(crate) fn accept(
        &self,
        stop: &Arc<StopInProgress>,
        cause: &Cause,
        role: Role,
        reached: &mut Reached,
    ) -> Accepted {
        let mut state = self.state.lock();
        if state.stops.iter().any(|own| Arc::ptr_eq(own, stop)) {
            return Accepted::CoveredBefore;
        }
        if role != Role::Below {
            // The account of a part is answered only if somebody waits for it: nothing to join.
            let running = state
                .stops
                .iter()
                .find(|stop| !stop.is_done() && !stop.is_part());
            if let Some(running) = running {
                return Accepted::Join(Arc::clone(running));
            }
        }
        if role == Role::Target && state.gate.check().is_err() {
            return Accepted::Shut;
        }
        if let Some(decision) = &self.decision
            && !decision.stop(cause.clone())
            && decision.stopped_by().is_none()
            && role != Role::Below
        {
            return Accepted::Committed;
        }
        if state.gate.waits()
            && let Some(unit) = &self.unit
        {
            state.ended.extend(unit.not_begun());
        }
        let live = state.gate.accept_stop(cause);
        stop.count().more(usize::from(live > 0));
        if state.ended.is_empty() {
            // Seldom more than one, or many: a vector that grows has room for four at first.
            state.ended.reserve_exact(live);
        }
        reached.tokens.extend(state.token.clone());
        if state.asked > 0 {
            for (_, entry) in &state.work {
                match &entry.force {
                    Force::Process(process) => reached.processes.push(process.clone()),
                    Force::Remote(ask) => reached.remotes.push(Arc::clone(ask)),
                    _ => {}
                }
            }
        }
        reached.below.extend(state.children());
        // Of those that are over only this node's own is still asked for.
        state
            .stops
            .retain(|stop| !stop.is_done() || stop.is_of(self));
        state.stops.push(Arc::clone(stop));
        Accepted::Covered
    }

    /// The stop that covers this node: its own if there is one, else the one that came first.
    pub(crate) fn covering_stop(&self) -> Option<Arc<StopInProgress>> {
        let state = self.state.lock();
        let own = state.stops.iter().find(|stop| stop.is_of(self));
        own.or_else(|| state.stops.first()).cloned()
    }

    /// An engine drives this scope: a stop waits for its acknowledgement too, and names it until then.
    pub(crate) fn attach_engine(&self) {
        let seq = self.env.next_seq();
        let mut state = self.state.lock();
        if state.engine == Engine::None && state.gate.register().is_ok() {
            state.engine = Engine::Attached(seq);
        }
    }

    /// The engine heard the stop, or has ended.
    pub(crate) fn engine_done(&self) {
        let mut state = self.state.lock();
        if !matches!(state.engine, Engine::Attached(_)) {
            return;
        }
        state.engine = Engine::Done;
        state.gate.finish();
        state.ended_one();
        let waiting = std::mem::take(&mut state.late_stops);
        drop(state);
        for stop in waiting {
            stop.count().one_less();
        }
    }

    /// Lets a stop that came too late wait for the engine, if that has not answered.
    pub(crate) fn watch_engine(&self, stop: &Arc<StopInProgress>) {
        let mut state = self.state.lock();
        if matches!(state.engine, Engine::Attached(_)) {
            stop.count().more(1);
            state.late_stops.push(Arc::clone(stop));
        }
    }
}
