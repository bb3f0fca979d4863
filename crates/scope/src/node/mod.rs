//! One node of the tree of scopes: its barrier, its registry of work, its children.
//!
//! Locking: one mutex a node, never held across an await and never while another node's is taken. A stop walks from
//! its target downwards, one node at a time; it counts as accepted when the walk is done, because until then a node
//! that was not reached yet may still start work, which the walk then finds and covers.

mod cover;
mod place;
mod registry;
mod unit;

use std::sync::{Arc, Weak};

use allstop_core::Cause;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::env::ScopeEnv;
use crate::gate::{Gate, NotStarted};
use crate::stop::StopInProgress;
use crate::sync::{AbortHandle, CancellationToken, Decision, Mutex, StopSignal};
use crate::work::{EndedWork, WorkEntry, WorkSpec};

pub(crate) use cover::{Accepted, Reached, Role};
use place::Place;
pub(crate) use registry::{FuturesOf, Listed, WorkKey};
pub(crate) use unit::Unit;

pub(crate) struct Node {
    pub(crate) env: Arc<ScopeEnv>,
    /// What receipts call it: `session/01J…/turn/7`.
    pub(crate) label: Arc<str>,
    /// Set where the whole scope is one item of a receipt: a tool call with all that it started.
    pub(crate) unit: Option<Arc<Unit>>,
    /// Given once a stop covers this node, and all that it covers has its cause.
    pub(crate) stopped: StopSignal,
    /// Commit versus stop, for the scope of a turn.
    decision: Option<Arc<Decision>>,
    /// Of this node; those above have their own.
    deadline: Option<Instant>,
    place: Place,
    state: Mutex<NodeState>,
}

/// What a new node is, beside its label.
#[derive(Default)]
pub(crate) struct NodeSpec {
    pub(crate) unit: Option<WorkSpec>,
    pub(crate) decision: Option<Arc<Decision>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) movable: bool,
}

#[derive(Default)]
struct NodeState {
    gate: Gate,
    work: Slab<WorkEntry>,
    ended: Vec<EndedWork>,
    children: Slab<Weak<Node>>,
    /// The stops that cover this node and are still counting: seldom more than a wide one and the account of a part.
    stops: SmallVec<[Arc<StopInProgress>; 2]>,
    deadline_timer: Option<AbortHandle>,
    /// An engine that has to acknowledge a stop, at a named checkpoint.
    engine: cover::Engine,
    /// Stops that came after the commit, and wait for the engine to have written it.
    late_stops: Vec<Arc<StopInProgress>>,
    /// The work that a stop has to ask by itself: processes and remotes.
    asked: usize,
    /// For code that knows tokens and not scopes: made when somebody asks for one.
    token: Option<CancellationToken>,
}

impl NodeState {
    /// The children that are alive. To be dropped outside the lock: the last handle of a child locks its parent.
    fn children(&self) -> impl Iterator<Item = Arc<Node>> {
        self.children
            .iter()
            .filter_map(|(_, child)| child.upgrade())
    }
}

impl Node {
    pub(crate) fn root(env: Arc<ScopeEnv>, label: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            env,
            label,
            unit: None,
            stopped: StopSignal::default(),
            decision: None,
            deadline: None,
            place: Place::Root,
            state: Mutex::default(),
        })
    }

    /// Makes a child, unless the barrier is closed: one step with the check.
    pub(crate) fn child(
        self: &Arc<Self>,
        label: Arc<str>,
        spec: NodeSpec,
    ) -> Result<Arc<Self>, NotStarted> {
        let unit = spec.unit.map(|unit| Unit::below(self, unit));
        let mut state = self.state.lock();
        state.gate.check()?;
        let child = Arc::new_cyclic(|child| {
            let key = state.children.insert(Weak::clone(child));
            Self {
                env: Arc::clone(&self.env),
                label,
                unit,
                stopped: StopSignal::default(),
                decision: spec.decision,
                deadline: spec.deadline,
                place: Place::below(self, key, spec.movable),
                state: Mutex::default(),
            }
        });
        Ok(child)
    }

    /// The children that are alive.
    pub(crate) fn children(&self) -> Vec<Arc<Node>> {
        self.state.lock().children().collect()
    }

    /// Whether nothing runs here or below and nothing ever will, because every barrier there is closed. Once true it
    /// stays so: a node that is closed and empty gets neither work nor children.
    pub(crate) fn has_ended(&self) -> bool {
        // With lists and not by recursion, here and below: scopes may be nested deeper than a stack is.
        let ended_with_children = |node: &Self| {
            let state = node.state.lock();
            let ended = state.gate.check().is_err() && state.gate.live() == 0;
            ended.then(|| state.children().collect::<Vec<_>>())
        };
        let Some(mut below) = ended_with_children(self) else {
            return false;
        };
        while let Some(node) = below.pop() {
            match ended_with_children(&node) {
                Some(children) => below.extend(children),
                None => return false,
            }
        }
        true
    }

    /// How much work runs here and below.
    pub(crate) fn subtree_live(&self) -> usize {
        let mut live = self.live();
        let mut below = self.children();
        while let Some(node) = below.pop() {
            live += node.live();
            below.extend(node.children());
        }
        live
    }

    /// The node above, at this moment.
    pub(crate) fn parent(&self) -> Option<Arc<Self>> {
        self.place.parent()
    }

    /// The nearest deadline, of this node or one above.
    pub(crate) fn nearest_deadline(&self) -> Option<Instant> {
        let mut nearest = self.deadline;
        let mut above = self.parent();
        while let Some(node) = above {
            nearest = nearest.into_iter().chain(node.deadline).min();
            above = node.parent();
        }
        nearest
    }

    /// A token that is cancelled once a stop covers this node.
    pub(crate) fn token(&self) -> CancellationToken {
        let mut state = self.state.lock();
        // A stop that is accepted later finds it, in one step with the cause.
        let stopped = state.gate.cause().is_some();
        let token = state.token.get_or_insert_default().clone();
        drop(state);
        if stopped {
            token.cancel();
        }
        token
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

    pub(crate) fn set_deadline_timer(&self, timer: AbortHandle) {
        let mut state = self.state.lock();
        if state.gate.check().is_err() {
            timer.abort();
        } else if let Some(former) = state.deadline_timer.replace(timer) {
            former.abort();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(timer) = self.state.get_mut().deadline_timer.take() {
            timer.abort();
        }
        // Those above of which this was the last handle, one after another.
        let mut above = self.place.leave();
        while let Some(parent) = above {
            let last = Arc::into_inner(parent);
            above = last.and_then(|mut node| node.place.leave());
        }
    }
}
