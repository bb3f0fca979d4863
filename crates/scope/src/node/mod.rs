//! One node of the tree of scopes: its barrier, its registry of work, its children.
//!
//! Locking: one mutex a node, never held across an await and never while another node's is taken. A stop walks from
//! its target downwards, one node at a time; it counts as accepted when the walk is done, because until then a node
//! that was not reached yet may still start work, which the walk then finds and covers.

mod cover;
mod registry;

use std::sync::{Arc, Weak};

use allstop_core::Cause;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::env::ScopeEnv;
use crate::gate::{Gate, NotStarted};
use crate::stop::StopInProgress;
use crate::sync::{AbortHandle, CancellationToken, Decision, Mutex};
use crate::work::{EndedWork, WorkEntry, WorkSpec};

pub(crate) use cover::{Accepted, Role};
pub(crate) use registry::{FuturesOf, Listed, WorkKey};

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
    deadline_timer: Option<AbortHandle>,
    /// An engine that has to acknowledge a stop, at a named checkpoint.
    engine: cover::Engine,
}

impl NodeState {
    /// The children that are alive. To be dropped outside the lock: the last handle of a child locks its parent.
    fn children(&self) -> Vec<Arc<Node>> {
        self.children
            .iter()
            .filter_map(|(_, child)| child.upgrade())
            .collect()
    }
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

    /// The children that are alive.
    pub(crate) fn children(&self) -> Vec<Arc<Node>> {
        self.state.lock().children()
    }

    /// Whether nothing runs here or below and nothing ever will, because every barrier there is closed. Once true it
    /// stays so: a node that is closed and empty gets neither work nor children.
    pub(crate) fn has_ended(&self) -> bool {
        let children = {
            let state = self.state.lock();
            if state.gate.check().is_ok() || state.gate.live() > 0 {
                return false;
            }
            state.children()
        };
        children.iter().all(|child| child.has_ended())
    }

    /// How much work runs here and below.
    pub(crate) fn subtree_live(&self) -> usize {
        // With a list and not by recursion: scopes may be nested deeper than a stack is.
        let mut live = self.live();
        let mut below = self.children();
        while let Some(node) = below.pop() {
            live += node.live();
            below.extend(node.children());
        }
        live
    }

    /// The unit that this node belongs to: its own, or the nearest above.
    pub(crate) fn unit_above(&self) -> Option<(u64, &WorkSpec)> {
        match &self.unit {
            Some(unit) => Some((unit.seq, &unit.spec)),
            None => self.parent.as_ref()?.unit_above(),
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
        if let Some(parent) = &self.parent {
            parent.state.lock().children.remove(self.key_in_parent);
        }
    }
}
