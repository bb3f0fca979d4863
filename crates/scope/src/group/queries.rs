//! Queries over a scope and all scopes below or above it. The queries use lists instead of recursion, because the
//! scopes may be nested more deeply than a stack allows.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Node, ScopeIndex};

impl Node {
    /// True if no work runs here or below, and no work can start because every barrier is closed. After the result is
    /// true once, it stays true: a closed and empty scope gets neither work nor children.
    pub(crate) fn has_ended(&self) -> bool {
        let mut below = vec![self.clone()];
        while let Some(node) = below.pop() {
            let state = node.group.state.lock();
            let entries = &state.entries;
            let is_open = |index: ScopeIndex| entries.check(index).is_ok();
            if entries.live(node.index) > 0 || entries.below(node.index).any(is_open) {
                return false;
            }
            let children: Vec<_> = state.children(node.index).collect();
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

    /// The earliest deadline of this scope and the scopes above it.
    pub(crate) fn nearest_deadline(&self) -> Option<Instant> {
        let mut nearest = None;
        let mut next = Some(self.clone());
        while let Some(node) = next {
            let state = node.group.state.lock();
            let deadlines = state.entries.upwards(node.index);
            let here = deadlines.filter_map(|entry| entry.deadline);
            nearest = here.chain(nearest).min();
            drop(state);
            next = node.group.position.parent();
        }
        nearest
    }

    /// The unit with this path, here or below. `None` if no such unit exists.
    pub(crate) fn find_unit(&self, path: &str) -> Option<Self> {
        let mut nodes = vec![self.clone()];
        while let Some(node) = nodes.pop() {
            let state = node.group.state.lock();
            let is_it = |index: &ScopeIndex| {
                let unit = state.entries.get(*index).unit.as_ref();
                unit.is_some_and(|unit| *unit.path == *path)
            };
            // Takes the last match. A model may use an id again, and the entries of ended scopes with this id still
            // exist.
            if let Some(index) = state.entries.below(node.index).filter(is_it).last() {
                let group = Arc::clone(&node.group);
                return Some(Self { group, index });
            }
            let children: Vec<_> = state.children(node.index).collect();
            drop(state);
            nodes.extend(children);
        }
        None
    }
}
