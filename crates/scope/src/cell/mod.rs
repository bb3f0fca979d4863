//! The tree of scopes. A [`Node`] is one scope. Nodes that belong together, such as a run with its turn and its calls,
//! share one [`Cell`]: one lock, one signal, one registry of work, and a small entry for each node.
//!
//! Locking: one mutex per cell, never held across an await and never while another cell's mutex is held. A stop walks
//! from its target downwards, one cell at a time. The stop is accepted when the walk ends. Until then, a cell that the
//! walk has not reached may still start work, which the walk then finds and covers.
//!
//! Cells, entries and stops hold each other: this file, [`entry`] and [`progress`]. The other files contain operations
//! on them: [`registry`] for work, [`acceptance`] for stops, [`moving`] for moves, [`queries`] for whole subtrees.

mod acceptance;
pub(crate) mod countdown;
mod entry;
mod moving;
mod placement;
mod progress;
mod queries;
mod registry;
mod unit;
mod work_entry;

use std::fmt;
use std::sync::{Arc, Weak};

use allstop_core::Cause;
use slab::Slab;

use crate::env::ScopeEnv;
use crate::gate::NotStarted;
use crate::sync::{AbortHandle, CancellationToken, Mutex, StopSignal};

pub(crate) use acceptance::{Accepted, Reached, Role};
pub(crate) use entry::NodeSpec;
use entry::{Entries, Entry};
pub use placement::Placement;
use placement::Seat;
pub(crate) use progress::{Rungs, StopInProgress};
pub(crate) use registry::{FuturesOf, Listed, WorkKey};
pub(crate) use unit::Unit;
pub(crate) use work_entry::{EndedWork, WorkEntry};

/// One scope: its cell, and its seat in that cell.
#[derive(Clone)]
pub(crate) struct Node {
    cell: Arc<Cell>,
    seat: Seat,
}

/// A [`Node`] that keeps nothing alive.
#[derive(Clone)]
pub(crate) struct WeakNode {
    cell: Weak<Cell>,
    seat: Seat,
}

/// The shared part of scopes that belong together. A cell exists as long as one of its scopes has a handle.
struct Cell {
    env: Arc<ScopeEnv>,
    place: Place,
    /// Set once a stop covers a scope of this cell. The entries record which scope.
    signal: StopSignal,
    state: Mutex<CellState>,
}

struct CellState {
    entries: Entries,
    work: Slab<WorkEntry>,
    ended: Vec<EndedWork>,
    /// The cells below, each with the seat of its parent.
    children: Slab<(Seat, Weak<Cell>)>,
    /// Number of processes and remotes, which a stop must ask individually.
    asked: usize,
}

/// Place of a cell in the tree.
///
/// Locking: take the lock of a movable place while no cell is locked, except one cell further down. While it is held,
/// the cells of the two parents are locked one after the other.
enum Place {
    Root,
    Fixed(Below),
    Movable(Mutex<Below>),
}

struct Below {
    parent: Node,
    key: usize,
    /// The unit that contains the parent, if that unit is in the parent's cell.
    unit: Option<Arc<Unit>>,
}

impl CellState {
    fn of(first: Entry) -> Mutex<Self> {
        Mutex::new(Self {
            entries: Entries::of(first),
            work: Slab::new(),
            ended: Vec::new(),
            children: Slab::new(),
            asked: 0,
        })
    }

    /// The live cells below this seat. Drop them outside the lock, because the last handle of a child locks its parent.
    fn children(&self, top: Seat) -> impl Iterator<Item = Node> {
        self.children
            .iter()
            .filter(move |(_, (seat, _))| self.entries.is_below(*seat, top))
            .filter_map(|(_, (_, child))| child.upgrade())
            .map(Node::first_of)
    }
}

impl Node {
    pub(crate) fn root(env: Arc<ScopeEnv>, label: Arc<str>) -> Self {
        Self::first_of(Arc::new(Cell {
            env,
            place: Place::Root,
            signal: StopSignal::default(),
            state: CellState::of(Entry::new(label, None, NodeSpec::default())),
        }))
    }

    /// The scope that a cell was created for.
    fn first_of(cell: Arc<Cell>) -> Self {
        Self {
            cell,
            seat: Seat::FIRST,
        }
    }

    /// Creates a child, unless the barrier is closed. The check and the creation are one step.
    pub(crate) fn child(&self, label: Arc<str>, mut spec: NodeSpec) -> Result<Self, NotStarted> {
        let placement = spec.placement;
        let unit = spec.unit.take().map(|unit| {
            let seq = self.env().next_seq();
            Arc::new(Unit::new(unit, seq, self.unit().as_deref()))
        });
        let entry = Entry::new(label, unit, spec);
        let mut state = self.cell.state.lock();
        state.entries.check(self.seat)?;
        if placement == Placement::Shared {
            let seat = state.entries.add(self.seat, entry);
            drop(state);
            let cell = Arc::clone(&self.cell);
            return Ok(Self { cell, seat });
        }
        let cell = Arc::new_cyclic(|child| {
            let key = state.children.insert((self.seat, Weak::clone(child)));
            Cell {
                env: Arc::clone(&self.cell.env),
                place: Place::below(self.clone(), key, &state, placement),
                signal: StopSignal::default(),
                state: CellState::of(entry),
            }
        });
        Ok(Self::first_of(cell))
    }

    pub(crate) fn downgrade(&self) -> WeakNode {
        WeakNode {
            cell: Arc::downgrade(&self.cell),
            seat: self.seat,
        }
    }

    pub(crate) fn env(&self) -> &Arc<ScopeEnv> {
        &self.cell.env
    }

    /// Name of the scope in receipts: `session/01J…/turn/7`.
    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.cell.state.lock().entries.get(self.seat).label)
    }

    pub(crate) fn relabel(&self, label: Arc<str>) {
        self.cell.state.lock().entries.get_mut(self.seat).label = label;
    }

    /// The live cells below.
    pub(crate) fn children(&self) -> Vec<Node> {
        self.cell.state.lock().children(self.seat).collect()
    }

    /// The unit that contains this scope: the scope itself, or the nearest unit above.
    pub(crate) fn unit(&self) -> Option<Arc<Unit>> {
        let own = self.cell.state.lock().entries.unit(self.seat).cloned();
        own.or_else(|| self.cell.place.unit())
    }

    /// A token that is cancelled once a stop covers this scope.
    pub(crate) fn token(&self) -> CancellationToken {
        let mut state = self.cell.state.lock();
        // A stop that is accepted later finds the token, in one step with the cause.
        let stopped = state.entries.cause(self.seat).is_some();
        let entry = state.entries.get_mut(self.seat);
        let token = entry.token.get_or_insert_default().clone();
        drop(state);
        if stopped {
            token.cancel();
        }
        token
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.cell.state.lock().entries.cause(self.seat).cloned()
    }

    pub(crate) fn check(&self) -> Result<(), NotStarted> {
        self.cell.state.lock().entries.check(self.seat)
    }

    /// Counts the work that runs here and in the scopes below that share the cell.
    pub(crate) fn live(&self) -> usize {
        self.cell.state.lock().entries.live(self.seat)
    }

    pub(crate) fn close(&self) {
        let mut state = self.cell.state.lock();
        let timer = state.entries.get_mut(self.seat).close();
        drop(state);
        if let Some(timer) = timer {
            timer.abort();
        }
    }

    pub(crate) fn set_deadline_timer(&self, timer: AbortHandle) {
        let mut state = self.cell.state.lock();
        let is_over = state.entries.check(self.seat).is_err();
        let entry = state.entries.get_mut(self.seat);
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
        std::ptr::eq(self.cell.as_ptr(), Arc::as_ptr(&node.cell)) && self.seat == node.seat
    }
}

impl WeakNode {
    pub(crate) fn upgrade(&self) -> Option<Node> {
        let cell = self.cell.upgrade()?;
        Some(Node {
            cell,
            seat: self.seat,
        })
    }
}

impl Below {
    /// The position below a parent whose cell registers the child under this key.
    fn of(parent: Node, key: usize, there: &CellState) -> Self {
        let unit = there.entries.unit(parent.seat).cloned();
        Self { parent, key, unit }
    }

    fn leave(&self) {
        drop(self.parent.cell.state.lock().children.remove(self.key));
    }
}

impl Place {
    /// The position below a parent whose cell registers the child under this key. The cell of the parent is locked.
    fn below(parent: Node, key: usize, there: &CellState, placement: Placement) -> Self {
        let below = Below::of(parent, key, there);
        if placement == Placement::Movable {
            Self::Movable(Mutex::new(below))
        } else {
            Self::Fixed(below)
        }
    }

    fn look<T>(&self, look: impl FnOnce(&Below) -> T) -> Option<T> {
        match self {
            Self::Root => None,
            Self::Fixed(below) => Some(look(below)),
            Self::Movable(below) => Some(look(&below.lock())),
        }
    }

    /// The scope above, at this moment.
    fn parent(&self) -> Option<Node> {
        self.look(|below| below.parent.clone())
    }

    /// The unit that contains the cell, at this moment.
    fn unit(&self) -> Option<Arc<Unit>> {
        let of = |below: &Below| (below.unit.clone(), below.parent.clone());
        let mut next = self.look(of);
        while let Some((unit, parent)) = next {
            if unit.is_some() {
                return unit;
            }
            next = parent.cell.place.look(of);
        }
        None
    }

    /// Removes the cell from the tree after its last handle is dropped. Returns the scope above.
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

impl Drop for Cell {
    fn drop(&mut self) {
        self.state.get_mut().entries.abort_timers();
        // A loop instead of recursion, because this may be the last handle of the cell above, and so on.
        let mut above = self.place.leave();
        while let Some(parent) = above {
            let last = Arc::into_inner(parent.cell);
            above = last.and_then(|mut cell| cell.place.leave());
        }
    }
}
