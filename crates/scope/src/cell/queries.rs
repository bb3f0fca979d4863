//! Queries over a scope and all scopes below or above it. They use lists instead of recursion, because the nesting of
//! scopes may exceed the depth of a stack.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Node, Seat};

impl Node {
    /// True if nothing runs here or below, and nothing can start, because every barrier is closed. Once true, the
    /// result stays true: a closed and empty scope gets neither work nor children.
    pub(crate) fn has_ended(&self) -> bool {
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

    /// The nearest deadline of this scope and the scopes above it.
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

    /// The unit with this path. `None` if the unit is neither here nor below.
    pub(crate) fn find_unit(&self, path: &str) -> Option<Self> {
        let mut nodes = vec![self.clone()];
        while let Some(node) = nodes.pop() {
            let state = node.cell.state.lock();
            let is_it = |seat: &Seat| {
                let unit = state.entries.get(*seat).unit.as_ref();
                unit.is_some_and(|unit| *unit.path == *path)
            };
            // Takes the last match, because an entry stays after its scope has ended, and models reuse ids.
            if let Some(seat) = state.entries.below(node.seat).filter(is_it).last() {
                let cell = Arc::clone(&node.cell);
                return Some(Self { cell, seat });
            }
            let children: Vec<_> = state.children(node.seat).collect();
            drop(state);
            nodes.extend(children);
        }
        None
    }
}
