//! The tree of scopes. A [`Node`] is one scope; nodes that belong together, such as a run with its turn and its calls,
//! lie in one [`Cell`]: one lock, one signal, one registry of work, with a light entry for each.
//!
//! Locking: one mutex a cell, never held across an await and never while another cell's is taken. A stop walks from its
//! target downwards, one cell at a time; it counts as accepted when the walk is done, because until then a cell that was
//! not reached yet may still start work, which the walk then finds and covers.

mod cover;
mod entry;
mod place;
mod registry;
mod unit;

use std::sync::{Arc, Weak};

use allstop_core::Cause;
use slab::Slab;
use tokio::time::Instant;

use crate::env::ScopeEnv;
use crate::gate::NotStarted;
use crate::scope::Placement;
use crate::sync::{AbortHandle, CancellationToken, Mutex, StopSignal};
use crate::work::{EndedWork, WorkEntry};

pub(crate) use cover::{Accepted, Reached, Role};
use entry::{Entries, Entry};
pub(crate) use entry::{NodeSpec, Seat};
use place::Place;
pub(crate) use registry::{FuturesOf, Listed, WorkKey};
pub(crate) use unit::Unit;

/// One scope: its cell, and its seat there.
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

/// The shared part of scopes that belong together. It lives as long as one of them has a handle.
struct Cell {
    env: Arc<ScopeEnv>,
    place: Place,
    /// Given once a stop covers something here; which of the scopes, their entries know.
    signal: StopSignal,
    state: Mutex<CellState>,
}

struct CellState {
    entries: Entries,
    work: Slab<WorkEntry>,
    ended: Vec<EndedWork>,
    /// The cells below, each with the seat that it was made at.
    children: Slab<(Seat, Weak<Cell>)>,
    /// The work that a stop has to ask by itself: processes and remotes.
    asked: usize,
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

    /// The cells below this seat that are alive. To be dropped outside the lock: the last handle of a child locks its
    /// parent.
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

    /// The scope that a cell was made for.
    fn first_of(cell: Arc<Cell>) -> Self {
        Self {
            cell,
            seat: Seat::FIRST,
        }
    }

    /// Makes a child, unless the barrier is closed: one step with the check.
    pub(crate) fn child(&self, label: Arc<str>, mut spec: NodeSpec) -> Result<Self, NotStarted> {
        let placement = spec.placement;
        let unit = spec.unit.take().map(|unit| Unit::below(self, unit));
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

    /// Its name in receipts: `session/01J…/turn/7`.
    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.cell.state.lock().entries.get(self.seat).label)
    }

    /// The cells below that are alive.
    pub(crate) fn children(&self) -> Vec<Node> {
        self.cell.state.lock().children(self.seat).collect()
    }

    /// True if nothing runs here or below and nothing ever will, because every barrier there is closed. Once true it
    /// stays so: a scope that is closed and empty gets neither work nor children.
    pub(crate) fn has_ended(&self) -> bool {
        // With lists and not by recursion, here and below: scopes may be nested deeper than a stack is.
        let mut below = vec![self.clone()];
        while let Some(node) = below.pop() {
            let state = node.cell.state.lock();
            let entries = &state.entries;
            let is_open = |seat: Seat| entries.check(seat).is_ok();
            if entries.live(node.seat) > 0 || entries.below(node.seat).any(is_open) {
                return false;
            }
            let children: Vec<_> = state.children(node.seat).collect();
            drop(state);
            below.extend(children);
        }
        true
    }

    /// Counts the work that runs here and below.
    pub(crate) fn subtree_live(&self) -> usize {
        let mut live = 0;
        let mut below = vec![self.clone()];
        while let Some(node) = below.pop() {
            live += node.live();
            below.extend(node.children());
        }
        live
    }

    /// The nearest deadline, of this scope or one above.
    pub(crate) fn nearest_deadline(&self) -> Option<Instant> {
        let mut nearest = None;
        let mut next = Some(self.clone());
        while let Some(node) = next {
            let state = node.cell.state.lock();
            let deadlines = state.entries.upwards(node.seat);
            let here = deadlines.filter_map(|entry| entry.deadline);
            nearest = here.chain(nearest).min();
            drop(state);
            next = node.cell.place.parent();
        }
        nearest
    }

    /// A token that is cancelled once a stop covers this scope.
    pub(crate) fn token(&self) -> CancellationToken {
        let mut state = self.cell.state.lock();
        // A stop that is accepted later finds it, in one step with the cause.
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

impl Drop for Cell {
    fn drop(&mut self) {
        self.state.get_mut().entries.abort_timers();
        // Those above of which this was the last handle, one after another.
        let mut above = self.place.leave();
        while let Some(parent) = above {
            let last = Arc::into_inner(parent.cell);
            above = last.and_then(|mut cell| cell.place.leave());
        }
    }
}
