//! Queries over a scope and all scopes below it, or above it: with lists instead of recursion, because scopes may be
//! nested deeper than a stack is.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Node, Seat};

impl Node {
    /// True if nothing runs here or below and nothing ever will, because every barrier there is closed. Once true it
    /// stays so: a scope that is closed and empty gets neither work nor children.
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

    /// The unit of this path, if it is here or below.
    pub(crate) fn find_unit(&self, path: &str) -> Option<Self> {
        let mut nodes = vec![self.clone()];
        while let Some(node) = nodes.pop() {
            let state = node.cell.state.lock();
            let is_it = |seat: &Seat| {
                let unit = state.entries.get(*seat).unit.as_ref();
                unit.is_some_and(|unit| *unit.path == *path)
            };
            // The last match: an entry stays when its scope has ended, and models reuse ids.
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
