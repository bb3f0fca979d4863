//! The tree of scopes. All work runs in scopes, and a stop of a scope also covers the scopes below. A [`Node`] is one
//! scope. Nodes that belong together, such as a run with its turn and its calls, share one [`ScopeGroup`]. The group
//! has one lock, one signal, one registry of work, and a small entry for each node.
//!
//! Locking: each group has one mutex. The mutex is never held across an await, and never while the mutex of another
//! group is held. A stop walks from its target downwards, one group at a time. The stop is accepted when the walk ends.
//! Until then, a group that the walk has not reached may still start work. The walk finds and covers this work later.
//!
//! Groups, entries and stops have references to each other. They are defined in this file, in [`entry`] and in
//! [`progress`]. The other files contain operations: [`registry`] for work, [`acceptance`] for stops, [`moving`] for
//! moves, [`queries`] for whole subtrees.

mod acceptance;
pub(crate) mod countdown;
mod entry;
mod moving;
mod placement;
mod progress;
mod queries;
mod receipt_scope;
mod registry;
mod work_entry;

use std::fmt;
use std::sync::{Arc, Weak};

use allstop_core::Cause;
use slab::Slab;

use crate::barrier::NotStarted;
use crate::env::ScopeEnv;
use crate::sync::{AbortHandle, CancellationToken, Mutex, StopSignal};

pub(crate) use acceptance::{Accepted, Role, StopWorklist};
pub(crate) use entry::NodeSpec;
use entry::{Entries, Entry};
pub use placement::Placement;
use placement::ScopeIndex;
pub(crate) use progress::{LadderTimes, StopInProgress};
pub(crate) use receipt_scope::ReceiptScope;
pub(crate) use registry::{FuturesOf, ListedWork, WorkKey};
pub(crate) use work_entry::{EndedWork, WorkEntry};

/// One scope: its group, and its index in that group.
#[derive(Clone)]
pub(crate) struct Node {
    group: Arc<ScopeGroup>,
    index: ScopeIndex,
}

/// A weak reference to a [`Node`].
#[derive(Clone)]
pub(crate) struct WeakNode {
    group: Weak<ScopeGroup>,
    index: ScopeIndex,
}

/// The shared part of scopes that belong together. A group exists as long as at least one of its scopes has a handle.
struct ScopeGroup {
    env: Arc<ScopeEnv>,
    position: TreePosition,
    /// Set after a stop covers any scope of this group. The entries record which scopes are covered.
    signal: StopSignal,
    state: Mutex<GroupState>,
}

struct GroupState {
    entries: Entries,
    work: Slab<WorkEntry>,
    ended: Vec<EndedWork>,
    /// The groups below, each with the index of its parent.
    children: Slab<(ScopeIndex, Weak<ScopeGroup>)>,
    /// Number of processes and remotes in this group. A stop must ask each of them individually.
    asked: usize,
}

/// Position of a group in the tree.
///
/// Locking: before a thread takes the lock of a movable position, it must release the locks of all groups. It may keep
/// only the lock of a group further down in the tree. While the lock of the position is held, the groups of the two
/// parents are locked one after the other.
enum TreePosition {
    Root,
    Fixed(ParentLink),
    Movable(Mutex<ParentLink>),
}

struct ParentLink {
    parent: Node,
    key: usize,
    /// The unit (a scope whose whole work is one item of a receipt) that contains the parent. Set only if that unit is
    /// in the parent's group.
    unit: Option<Arc<ReceiptScope>>,
}

impl GroupState {
    fn of(first: Entry) -> Mutex<Self> {
        Mutex::new(Self {
            entries: Entries::of(first),
            work: Slab::new(),
            ended: Vec::new(),
            children: Slab::new(),
            asked: 0,
        })
    }

    /// The groups below this scope that still exist. Drop the returned nodes outside the lock: a returned node may be
    /// the last handle of a child, and dropping the last handle locks the parent.
    fn children(&self, top: ScopeIndex) -> impl Iterator<Item = Node> {
        self.children
            .iter()
            .filter(move |(_, (index, _))| self.entries.is_below(*index, top))
            .filter_map(|(_, (_, child))| child.upgrade())
            .map(Node::first_of)
    }
}

impl Node {
    pub(crate) fn root(env: Arc<ScopeEnv>, label: Arc<str>) -> Self {
        Self::first_of(Arc::new(ScopeGroup {
            env,
            position: TreePosition::Root,
            signal: StopSignal::default(),
            state: GroupState::of(Entry::new(label, None, NodeSpec::default())),
        }))
    }

    /// The node of the scope that this group was created for.
    fn first_of(group: Arc<ScopeGroup>) -> Self {
        Self {
            group,
            index: ScopeIndex::FIRST,
        }
    }

    /// Creates a child. Fails if the barrier is closed. The check and the creation are one step.
    pub(crate) fn child(&self, label: Arc<str>, mut spec: NodeSpec) -> Result<Self, NotStarted> {
        let placement = spec.placement;
        let unit = spec.unit.take().map(|unit| {
            let seq = self.env().next_seq();
            Arc::new(ReceiptScope::new(unit, seq, self.unit().as_deref()))
        });
        let entry = Entry::new(label, unit, spec);
        let mut state = self.group.state.lock();
        state.entries.check(self.index)?;
        if placement == Placement::Shared {
            let index = state.entries.add(self.index, entry);
            drop(state);
            let group = Arc::clone(&self.group);
            return Ok(Self { group, index });
        }
        let group = Arc::new_cyclic(|child| {
            let key = state.children.insert((self.index, Weak::clone(child)));
            ScopeGroup {
                env: Arc::clone(&self.group.env),
                position: TreePosition::below(self.clone(), key, &state, placement),
                signal: StopSignal::default(),
                state: GroupState::of(entry),
            }
        });
        Ok(Self::first_of(group))
    }

    pub(crate) fn downgrade(&self) -> WeakNode {
        WeakNode {
            group: Arc::downgrade(&self.group),
            index: self.index,
        }
    }

    pub(crate) fn env(&self) -> &Arc<ScopeEnv> {
        &self.group.env
    }

    /// Name of the scope in receipts: `session/01J…/turn/7`.
    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.group.state.lock().entries.get(self.index).label)
    }

    pub(crate) fn relabel(&self, label: Arc<str>) {
        self.group.state.lock().entries.get_mut(self.index).label = label;
    }

    /// The groups below this scope that still exist.
    pub(crate) fn children(&self) -> Vec<Node> {
        self.group.state.lock().children(self.index).collect()
    }

    /// The unit that contains this scope: the scope itself, or the nearest unit above.
    pub(crate) fn unit(&self) -> Option<Arc<ReceiptScope>> {
        let own = self.group.state.lock().entries.unit(self.index).cloned();
        own.or_else(|| self.group.position.unit())
    }

    /// A token that is cancelled as soon as a stop covers this scope.
    pub(crate) fn token(&self) -> CancellationToken {
        let mut state = self.group.state.lock();
        // A stop that is accepted later sets the cause and finds the token in one step.
        let stopped = state.entries.cause(self.index).is_some();
        let entry = state.entries.get_mut(self.index);
        let token = entry.token.get_or_insert_default().clone();
        drop(state);
        if stopped {
            token.cancel();
        }
        token
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.group.state.lock().entries.cause(self.index).cloned()
    }

    pub(crate) fn check(&self) -> Result<(), NotStarted> {
        self.group.state.lock().entries.check(self.index)
    }

    /// Counts the running work of this scope, and of the scopes below it that share its group.
    pub(crate) fn live(&self) -> usize {
        self.group.state.lock().entries.live(self.index)
    }

    pub(crate) fn close(&self) {
        let mut state = self.group.state.lock();
        let timer = state.entries.get_mut(self.index).close();
        drop(state);
        if let Some(timer) = timer {
            timer.abort();
        }
    }

    pub(crate) fn set_deadline_timer(&self, timer: AbortHandle) {
        let mut state = self.group.state.lock();
        let is_over = state.entries.check(self.index).is_err();
        let entry = state.entries.get_mut(self.index);
        let needless = if is_over {
            Some(timer)
        } else {
            entry.deadline_timer.replace(timer)
        };
        drop(state);
        if let Some(timer) = needless {
            timer.abort();
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("label", &self.label())
            .field("cause", &self.cause())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl PartialEq<Node> for WeakNode {
    fn eq(&self, node: &Node) -> bool {
        std::ptr::eq(self.group.as_ptr(), Arc::as_ptr(&node.group)) && self.index == node.index
    }
}

impl WeakNode {
    pub(crate) fn upgrade(&self) -> Option<Node> {
        let group = self.group.upgrade()?;
        Some(Node {
            group,
            index: self.index,
        })
    }
}

impl ParentLink {
    /// The position below a parent. The group of the parent has registered the child under `key`.
    fn of(parent: Node, key: usize, there: &GroupState) -> Self {
        let unit = there.entries.unit(parent.index).cloned();
        Self { parent, key, unit }
    }

    fn leave(&self) {
        drop(self.parent.group.state.lock().children.remove(self.key));
    }
}

impl TreePosition {
    /// The position below a parent. The group of the parent has registered the child under `key`, and is locked.
    fn below(parent: Node, key: usize, there: &GroupState, placement: Placement) -> Self {
        let below = ParentLink::of(parent, key, there);
        if placement == Placement::Movable {
            Self::Movable(Mutex::new(below))
        } else {
            Self::Fixed(below)
        }
    }

    fn look<T>(&self, look: impl FnOnce(&ParentLink) -> T) -> Option<T> {
        match self {
            Self::Root => None,
            Self::Fixed(below) => Some(look(below)),
            Self::Movable(below) => Some(look(&below.lock())),
        }
    }

    /// The scope above at this moment. A later move can change it.
    fn parent(&self) -> Option<Node> {
        self.look(|below| below.parent.clone())
    }

    /// The unit that contains the group at this moment. A later move can change it.
    fn unit(&self) -> Option<Arc<ReceiptScope>> {
        let of = |below: &ParentLink| (below.unit.clone(), below.parent.clone());
        let mut next = self.look(of);
        while let Some((unit, parent)) = next {
            if unit.is_some() {
                return unit;
            }
            next = parent.group.position.look(of);
        }
        None
    }

    /// Removes the group from the tree after the last handle of the group was dropped. Returns the scope above.
    fn leave(&mut self) -> Option<Node> {
        let below = match std::mem::replace(self, Self::Root) {
            Self::Root => return None,
            Self::Fixed(below) => below,
            Self::Movable(below) => below.into_inner(),
        };
        below.leave();
        Some(below.parent)
    }
}

impl Drop for ScopeGroup {
    fn drop(&mut self) {
        self.state.get_mut().entries.abort_timers();
        // A loop instead of recursion: this group may have the last handle of the group above. That group may have the
        // last handle of the next group, and so on.
        let mut above = self.position.leave();
        while let Some(parent) = above {
            let last = Arc::into_inner(parent.group);
            above = last.and_then(|mut group| group.position.leave());
        }
    }
}
