//! One node of the tree of scopes: its barrier, its registry of work, its children.
//!
//! Locking: one mutex a node, never held across an await and never while another node's is taken. A stop walks from
//! its target downwards, one node at a time; it counts as accepted when the walk is done, because until then a node
//! that was not reached yet may still start work, which the walk then finds and covers.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use allstop_core::Cause;
use allstop_core::decision::Decision;
use parking_lot::Mutex;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::env::ScopeEnv;
use crate::gate::{Gate, NotStarted};
use crate::stop::StopInProgress;
use crate::work::{Details, EndedWork, Ending, Force, Registration, WorkEntry, WorkSpec};

pub(crate) struct Node {
    pub(crate) env: Arc<ScopeEnv>,
    /// What receipts call it: `session/01J…/turn/7`.
    pub(crate) label: Arc<str>,
    /// Set where the whole scope is one item of a receipt: a tool call with all that it started.
    pub(crate) unit: Option<Unit>,
    pub(crate) token: CancellationToken,
    /// Commit versus stop, for the scope of a turn.
    decision: Option<Arc<Decision>>,
    /// The nearest deadline, of this node or one above.
    pub(crate) deadline: Option<Instant>,
    parent: Option<Arc<Node>>,
    key_in_parent: usize,
    state: Mutex<NodeState>,
}

pub(crate) struct Unit {
    pub(crate) spec: WorkSpec,
    pub(crate) seq: u64,
}

#[derive(Default)]
struct NodeState {
    gate: Gate,
    work: Slab<WorkEntry>,
    ended: Vec<EndedWork>,
    children: Slab<Weak<Node>>,
    /// The stops that cover this node and are still counting: seldom more than a wide one and the account of a part.
    stops: SmallVec<[Arc<StopInProgress>; 2]>,
    deadline_timer: Option<tokio::task::AbortHandle>,
    /// An engine that has to acknowledge a stop, at a named checkpoint.
    engine: Engine,
}

/// Names one piece of work of a node. The slot is used again after its end; the number is not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkKey {
    slot: usize,
    seq: u64,
}

impl NodeState {
    /// A piece of work that the running stops count has ended.
    fn one_less(&self) {
        for stop in self.stops.iter().filter(|stop| !stop.is_done()) {
            stop.one_less();
        }
    }

    /// The entry, unless that work has ended.
    fn entry_mut(&mut self, key: WorkKey) -> Option<&mut WorkEntry> {
        self.work
            .get_mut(key.slot)
            .filter(|entry| entry.seq == key.seq)
    }
}

/// Whether the engine that drives a scope has acknowledged.
#[derive(Debug, Default, Clone, PartialEq)]
enum Engine {
    #[default]
    None,
    Attached,
    /// It heard the stop at a checkpoint, or had verifiably ended before.
    Done,
}

/// What came over a piece of work while it was being made.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Meanwhile {
    pub(crate) stopped: bool,
    pub(crate) forced: bool,
}

/// How a node stands to a stop that was asked of it.
pub(crate) enum Accepted {
    /// It is covered now.
    Covered,
    /// What it was for has ended, or can no longer be stopped.
    AlreadyEnded,
    /// A stop that covers it runs: join it.
    Join(Arc<StopInProgress>),
}

impl Node {
    pub(crate) fn root(env: Arc<ScopeEnv>, label: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            env,
            label,
            unit: None,
            token: CancellationToken::new(),
            decision: None,
            deadline: None,
            parent: None,
            key_in_parent: 0,
            state: Mutex::default(),
        })
    }

    /// Makes a child, unless the barrier is closed: one step with the check.
    pub(crate) fn child(
        self: &Arc<Self>,
        label: Arc<str>,
        unit: Option<WorkSpec>,
        decision: Option<Arc<Decision>>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Self>, NotStarted> {
        let unit = unit.map(|spec| Unit {
            spec,
            seq: self.env.next_seq(),
        });
        let mut state = self.state.lock();
        state.gate.check()?;
        let child = Arc::new_cyclic(|child| Self {
            env: Arc::clone(&self.env),
            label,
            unit,
            token: self.token.child_token(),
            decision,
            deadline: [self.deadline, deadline].into_iter().flatten().min(),
            key_in_parent: state.children.insert(Weak::clone(child)),
            parent: Some(Arc::clone(self)),
            state: Mutex::default(),
        });
        Ok(child)
    }

    pub(crate) fn register(
        self: &Arc<Self>,
        spec: WorkSpec,
        force: Force,
    ) -> Result<Registration, NotStarted> {
        let seq = self.env.next_seq();
        let mut state = self.state.lock();
        state.gate.register()?;
        let entry = WorkEntry {
            seq,
            spec,
            force,
            acknowledged: None,
            forced: false,
        };
        let key = WorkKey {
            slot: state.work.insert(entry),
            seq,
        };
        drop(state);
        Ok(Registration::new(Arc::clone(self), key))
    }

    /// Says how a registered piece of work is forced, once its task exists.
    pub(crate) fn set_force(&self, key: WorkKey, force: Force) -> Meanwhile {
        let mut state = self.state.lock();
        let stopped = state.gate.cause().is_some();
        let Some(entry) = state.entry_mut(key) else {
            return Meanwhile::default();
        };
        if let (true, Force::Abort(handle)) = (entry.forced, &force) {
            handle.abort();
        }
        let forced = entry.forced;
        entry.force = force;
        Meanwhile { stopped, forced }
    }

    pub(crate) fn acknowledge(&self, key: WorkKey, checkpoint: Cow<'static, str>) {
        let mut state = self.state.lock();
        // Before a stop there is nothing to acknowledge: a flag set early would later read back as an observation.
        if state.gate.cause().is_none() {
            return;
        }
        if let Some(entry) = state.entry_mut(key)
            && entry.acknowledged.is_none()
        {
            entry.acknowledged = Some(checkpoint);
        }
    }

    /// The futures of this node heard the stop. Without one there is nothing to acknowledge.
    pub(crate) fn acknowledge_futures(&self, checkpoint: &'static str) {
        let mut state = self.state.lock();
        if state.gate.cause().is_none() {
            return;
        }
        for (_, entry) in &mut state.work {
            if matches!(entry.force, Force::Abort(_) | Force::AbortSoon) {
                entry.acknowledged.get_or_insert(checkpoint.into());
            }
        }
    }

    pub(crate) fn end_work(&self, key: WorkKey, ending: Ending, details: Details) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let entry = state.work.remove(key.slot);
        state.gate.finish();
        if state.stops.is_empty() {
            return;
        }
        let ending = match (ending, entry.acknowledged) {
            (Ending::Returned, Some(checkpoint)) => Ending::Acknowledged(checkpoint),
            (Ending::Dropped, _) if matches!(entry.force, Force::Remote(_)) => Ending::NotConfirmed,
            (ending, _) => ending,
        };
        state.ended.push(EndedWork {
            seq: entry.seq,
            spec: entry.spec,
            ending,
            at: Instant::now(),
            details,
            was_thread: matches!(entry.force, Force::Thread),
        });
        state.one_less();
    }

    /// Moves a piece of work to another node: from now on it belongs there, and stops of this one do not cover it.
    pub(crate) fn release_work(&self, key: WorkKey) {
        let mut state = self.state.lock();
        state.work.remove(key.slot);
        state.gate.finish();
        state.one_less();
    }

    /// The same, unless a stop covers this node: in one step with the check. A closed scope lets go.
    pub(crate) fn release_unless_stopped(&self, key: WorkKey) -> Result<(), NotStarted> {
        let mut state = self.state.lock();
        if let Some(cause) = state.gate.cause() {
            return Err(NotStarted::Stopped(cause.clone()));
        }
        state.work.remove(key.slot);
        state.gate.finish();
        Ok(())
    }

    /// An engine drives this scope: a stop waits for its acknowledgement too.
    pub(crate) fn attach_engine(&self) {
        let mut state = self.state.lock();
        if state.engine == Engine::None && state.gate.register().is_ok() {
            state.engine = Engine::Attached;
        }
    }

    /// The engine heard the stop, or has ended.
    pub(crate) fn engine_done(&self) {
        let mut state = self.state.lock();
        if state.engine != Engine::Attached {
            return;
        }
        state.engine = Engine::Done;
        state.gate.finish();
        state.one_less();
    }

    /// Whether no engine is left that has not acknowledged.
    pub(crate) fn engine_acknowledged(&self) -> bool {
        self.state.lock().engine != Engine::Attached
    }

    /// The children that are alive.
    pub(crate) fn children(&self) -> Vec<Arc<Node>> {
        // Upgraded under the lock, dropped outside it: the last handle of a child locks its parent.
        self.state
            .lock()
            .children
            .iter()
            .filter_map(|(_, child)| child.upgrade())
            .collect()
    }

    /// Closes the barrier of this node for a stop and counts what it has to wait for. `is_target`: the node that the
    /// stop was asked of, where joining and ending early are decided.
    pub(crate) fn accept(
        &self,
        stop: &Arc<StopInProgress>,
        cause: &Cause,
        is_target: bool,
    ) -> Accepted {
        let mut state = self.state.lock();
        if is_target && let Some(running) = state.stops.iter().find(|stop| !stop.is_done()) {
            return Accepted::Join(Arc::clone(running));
        }
        if let Some(decision) = &self.decision
            && !decision.stop(cause.clone())
            && decision.stopped_by().is_none()
            && is_target
        {
            return Accepted::AlreadyEnded;
        }
        let live = state.gate.accept_stop(cause);
        stop.more(live);
        // Of those that are over only this node's own is still asked for.
        state
            .stops
            .retain(|stop| !stop.is_done() || stop.is_of(self));
        state.stops.push(Arc::clone(stop));
        Accepted::Covered
    }

    /// Whether this scope has ended: its barrier is closed and nothing in it or below runs. Once true it stays so.
    pub(crate) fn has_ended(&self) -> bool {
        self.check().is_err() && self.subtree_live() == 0
    }

    /// How much work runs here and below.
    pub(crate) fn subtree_live(&self) -> usize {
        self.live()
            + self
                .children()
                .iter()
                .map(|child| child.subtree_live())
                .sum::<usize>()
    }

    /// The unit that this node belongs to: its own, or the nearest above.
    pub(crate) fn unit_above(&self) -> Option<(u64, &WorkSpec)> {
        match &self.unit {
            Some(unit) => Some((unit.seq, &unit.spec)),
            None => self.parent.as_ref()?.unit_above(),
        }
    }

    /// Visits every entry that runs.
    pub(crate) fn for_each_running(&self, mut visit: impl FnMut(&mut WorkEntry)) {
        for (_, entry) in &mut self.state.lock().work {
            visit(entry);
        }
    }

    /// Visits every piece of work that ended under a stop.
    pub(crate) fn for_each_ended(&self, mut visit: impl FnMut(&EndedWork)) {
        for ended in &self.state.lock().ended {
            visit(ended);
        }
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().gate.cause().cloned()
    }

    pub(crate) fn check(&self) -> Result<(), NotStarted> {
        self.state.lock().gate.check()
    }

    pub(crate) fn live(&self) -> usize {
        self.state.lock().gate.live()
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.gate.close();
        if let Some(timer) = state.deadline_timer.take() {
            timer.abort();
        }
    }

    pub(crate) fn set_deadline_timer(&self, timer: tokio::task::AbortHandle) {
        let mut state = self.state.lock();
        if state.gate.check().is_err() {
            timer.abort();
        } else if let Some(former) = state.deadline_timer.replace(timer) {
            former.abort();
        }
    }

    /// The stop that covers this node: its own if there is one, else the one that came first.
    pub(crate) fn covering_stop(&self) -> Option<Arc<StopInProgress>> {
        let state = self.state.lock();
        let own = state.stops.iter().find(|stop| stop.is_of(self));
        own.or_else(|| state.stops.first()).cloned()
    }

    /// The id of the stop that ended this node, for the answer `already_ended`.
    pub(crate) fn last_stop(&self) -> Option<Arc<StopInProgress>> {
        self.state.lock().stops.last().cloned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(timer) = self.state.get_mut().deadline_timer.take() {
            timer.abort();
        }
        if let Some(parent) = &self.parent {
            parent.state.lock().children.remove(self.key_in_parent);
        }
    }
}
